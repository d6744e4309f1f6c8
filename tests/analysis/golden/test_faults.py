"""Faults: trace, query and expected table."""

from tests.support.golden import check


def test_a_fault_has_its_owner_and_its_phase(tmp_path):
    check(
        tmp_path,
        {
            "processes": """
                pid | tid | role   | target | comm
                7   | 7   | target | job    | python
                7   | 7   | target | other  | python
            """,
            "phases": """
                start | end | pid | tid | name       | epoch | step
                100   | 200 | 7   | 7   | model_load | -     | -
            """,
            "page_faults": """
                ts  | pid | tid | kind  | user  | file         | symbol
                150 | 7   | 7   | major | true  | libtorch.so  | dlopen
                250 | 7   | 7   | minor | false | [heap]       | -
            """,
        },
        'SELECT ts, kind, "user", file, symbol, comm, role, target, stage FROM faults',
        """
        ts  | kind  | user  | file        | symbol | comm   | role   | target | stage
        150 | major | true  | libtorch.so | dlopen | python | target | -      | model_load
        250 | minor | false | [heap]      | -      | python | target | -      | -
        """,
    )

"""Calls: trace, query and expected table."""

from tests.support.golden import check

PROCESSES = """
    pid | tid | role   | target | container_id | comm
    7   | 7   | target | job    | c1           | python
    7   | 70  | target | job    | c1           | pt_autograd
    8   | 8   | child  | job    | c1           | worker
"""


def test_a_call_has_its_owner_and_the_phase_that_it_was_entered_in(tmp_path):
    check(
        tmp_path,
        {
            "processes": PROCESSES,
            "phases": """
                start | end | pid | tid | name    | epoch | step
                0     | 900 | 7   | 7   | train   | -     | -
                100   | 200 | 7   | 7   | step    | 2     | 5
                120   | 150 | 7   | 7   | forward | 2     | 5
                300   | 310 | 8   | 8   | fetch   | 2     | 6
            """,
            "syscalls": """
                ts  | pid | tid | nr | name  | dur_ns | ret
                99  | 7   | 7   | 0  | read  | 50     | 1
                120 | 7   | 7   | 0  | read  | 5      | 1
                149 | 7   | 70  | 0  | futex | 500    | 0
                150 | 7   | 7   | 0  | write | -      | -
                305 | 8   | 8   | 0  | read  | 1      | 1
                310 | 8   | 8   | 0  | read  | 1      | 1
                950 | 7   | 7   | 0  | close | 1      | 0
                950 | 9   | 9   | 0  | close | 1      | 0
            """,
        },
        "SELECT ts, tid, name, dur_ns, comm, role, target, container, phase, stage, epoch, step "
        "FROM calls",
        """
        ts |tid|name |dur_ns|comm       |role  |target|container|phase  |stage|epoch|step
        99 |7  |read |50    |python     |target|job   |c1       |train  |train|-    |-
        120|7  |read |5     |python     |target|job   |c1       |forward|train|2    |5
        149|70 |futex|500   |pt_autograd|target|job   |c1       |forward|train|2    |5
        150|7  |write|-     |python     |target|job   |c1       |step   |train|2    |5
        305|8  |read |1     |worker     |child |job   |c1       |fetch  |train|2    |6
        310|8  |read |1     |worker     |child |job   |c1       |-      |train|-    |-
        950|7  |close|1     |python     |target|job   |c1       |-      |-    |-    |-
        950|9  |close|1     |-          |-     |-     |-        |-      |-    |-    |-
        """,
    )


def test_without_phases_and_processes_calls_are_there_and_the_rest_is_null(tmp_path):
    check(
        tmp_path,
        {
            "syscalls": """
                ts | pid | tid | nr | name | dur_ns
                5  | 7   | 7   | 0  | read | 50
            """
        },
        "SELECT ts, name, comm, role, phase, stage, epoch, step FROM calls",
        """
        ts | name | comm | role | phase | stage | epoch | step
        5  | read | -    | -    | -     | -     | -     | -
        """,
    )

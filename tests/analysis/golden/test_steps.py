"""Steps: trace, query and expected table."""

from tests.support.golden import check


def test_parts_of_a_step_and_what_is_left(tmp_path):
    check(
        tmp_path,
        {
            "phases": """
                start | end | pid | tid | name       | epoch | step
                0     | 500 | 7   | 7   | train      | -     | -
                100   | 200 | 7   | 7   | step       | 0     | 0
                100   | 130 | 7   | 7   | fetch      | 0     | 0
                135   | 150 | 7   | 7   | forward    | 0     | 0
                150   | 180 | 7   | 7   | backward   | 0     | 0
                182   | 190 | 7   | 7   | optimizer  | 0     | 0
                300   | -   | 7   | 7   | step       | 0     | 1
            """
        },
        'SELECT stage, epoch, step, start, "end", total_ns AS total, fetch_stall_ns AS stall, '
        "compute_ns AS compute, overhead_ns AS overhead, gpu_forward_ns AS gpu FROM steps",
        """
        stage | epoch | step | start | end | total | stall | compute | overhead | gpu
        train | 0     | 0    | 100   | 200 | 100   | 30    | 53      | 17       | -
        train | 0     | 1    | 300   | -   | -     | -     | -       | -        | -
        """,
    )


def test_a_fetch_before_the_step_is_the_step_s(tmp_path):
    check(
        tmp_path,
        {
            "phases": """
                start | end | pid | tid | name  | epoch | step
                80    | 95  | 7   | 7   | fetch | 0     | 0
                100   | 200 | 7   | 7   | step  | 0     | 0
            """
        },
        "SELECT stage, start, total_ns, fetch_stall_ns, overhead_ns FROM steps",
        """
        stage | start | total_ns | fetch_stall_ns | overhead_ns
        -     | 80    | 120      | 15             | 105
        """,
    )

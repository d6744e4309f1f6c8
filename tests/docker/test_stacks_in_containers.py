"""Lines of Python code that threads wait in whose numbers differ in their container and here."""

from tests.support.losses import losses
from tracer.analysis.views.waiting.waits import waits

SLEEPERS = """
import threading

def sleep_in_a_thread():
    time.sleep(1.5)

def sleep_in_main():
    time.sleep(1.5)

thread = threading.Thread(target=sleep_in_a_thread)
thread.start()
sleep_in_main()
thread.join()
say(name + "-is-done")
time.sleep(1000)
"""


def test_the_lines_of_a_container_s_threads(start, tell, record):
    start("sleepers", SLEEPERS)
    tell(None, "sleepers-is-up")
    recording = record("--container", "sleepers", "--stacks")
    tell("go", "sleepers-is-done")
    with recording.stop() as trace:
        waits(trace)
        rows = trace.rows(
            "SELECT tid = pid, split_part(line, ' (', 1) FROM waits WHERE dur_ns > 1.2e9 ORDER BY 1"
        )
        assert losses(trace) == []
    assert rows == [(False, "sleep_in_a_thread"), (True, "sleep_in_main")]

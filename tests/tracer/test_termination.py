"""A verb that is told to end removes its temporary files first."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time

import duckdb
import psutil
import pytest

from tests.support.budget import within_budget
from tests.support.traces import make_trace
from tests.support.waiting import wait_for
from tests.support.waiting_steps import make_waiting
from tests.support.warm import Tracer
from tracer.analysis.views import threads
from tracer.cli.main import terminable
from tracer.store.interrupt import interruptible
from tracer.store.packing import pack
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow

ENDLESS = """
SELECT sum((a.range + b.range * c.range) % 7)
FROM range(100000) a, range(100000) b, range(100000) c
"""
SHORT = "SELECT sum((a.range + b.range) % 2) FROM range(3000) a, range(3000) b"
GOES_ON = "SELECT range FROM range(1000000000000) WHERE range < 300000 OR hash(range) = 0"
"""A query whose first rows come at once. Its other rows never come."""

WAYS = {
    "sql": lambda trace: trace.sql(ENDLESS),
    "arrow": lambda trace: trace.arrow(ENDLESS),
    "rows": lambda trace: trace.rows(ENDLESS),
    "execute": lambda trace: trace.execute(f"CREATE TEMP TABLE x AS {ENDLESS}"),
    "batches": lambda trace: list(trace.batches(ENDLESS)),
    "later batches": lambda trace: list(trace.batches(GOES_ON)),
    "batches beside others": lambda trace: list(trace.batches(ENDLESS, beside=True)),
    "later batches beside others": lambda trace: list(trace.batches(GOES_ON, beside=True)),
}


def wait_until_it_computes(pid):
    """Wait until a process has used so much CPU time that it must be in its query."""
    process = psutil.Process(pid)

    def spent():
        return sum(process.cpu_times()[:2])

    enough = spent() + 0.4
    wait_for(lambda: spent() > enough, "the query to compute")


def without_end():
    """Before a verb begins: a view whose query never ends, as if the trace were that large."""
    threads._SQL = f"CREATE TEMP TABLE threads AS {ENDLESS}"


VERBS = {
    "query": (("query", "x.tar.zst", ENDLESS), None),
    "query of rows": (("query", "x.tar.zst", GOES_ON), None),
    "explain": (("explain", "x.tar.zst"), without_end),
}


def end(folder, verb, number, computes):
    """Run a verb, end it by a signal, and see that it leaves nothing."""
    make_waiting(folder / "x.trace").close()
    pack(folder / "x.trace", folder / "x.tar.zst")
    temporary = folder / "temporary"
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary)}
    arguments, before = VERBS[verb]
    with Tracer(*arguments, cwd=folder, env=env, before=before) as process:
        try:
            # One folder has the unpacked trace, the other one what DuckDB spills.
            wait_for(lambda: len(list(temporary.iterdir())) == 2, "the query to begin")
            if computes:
                wait_until_it_computes(process.pid)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        except BaseException:
            process.kill()
            raise
    assert (process.returncode, out, err) == (130, "", "tracer: interrupted before it was done\n")
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_verb_that_a_signal_ends_leaves_no_folder(tmp_path, number):
    end(tmp_path, "query", number, computes=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("verb", VERBS)
def test_a_signal_ends_a_verb_whose_query_computes(tmp_path, verb, number):
    end(tmp_path, verb, number, computes=True)


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_ends_our_queries_and_the_trace_can_be_asked_again(tmp_path, way):
    make_trace(tmp_path / "x.trace", {"syscalls": [{"tid": 7}]}).close()
    assert within_budget(interrupted, tmp_path / "x.trace", way) is None


def interrupted(folder, way):
    with Trace(folder) as trace:
        trace.rows("SELECT 1")  # opens the connection
        with pytest.raises(KeyboardInterrupt), while_it_computes(press_ctrl_c):
            WAYS[way](trace)
        assert trace.rows("SELECT tid FROM syscalls") == [(7,)]


def test_a_second_ctrl_c_does_not_leave_a_query_behind():
    assert within_budget(pressed_again) is None


def pressed_again():
    ended = []

    def ask(db):
        # After the first Ctrl-C, another thread interrupts until this call has ended.
        for _ in range(3):
            press_ctrl_c()
            with pytest.raises(duckdb.InterruptException):
                db.execute(ENDLESS)
        ended.append(True)

    with duckdb.connect() as connection:
        with pytest.raises(KeyboardInterrupt):
            interruptible(connection, ask)
        assert ended == [True]


def test_ctrl_c_ends_a_query_in_a_fork_of_a_process_that_has_asked():
    with duckdb.connect() as connection:
        interruptible(connection, lambda db: db.execute("SELECT 1"))
    fork = multiprocessing.get_context("fork").Process(target=pressed_again)
    fork.start()
    fork.join(60)
    fork.kill()
    assert fork.exitcode == 0


def test_a_signal_at_the_end_of_a_call_does_not_end_the_next_call():
    assert within_budget(pressed_at_the_end) is None


def pressed_at_the_end():
    with duckdb.connect() as connection:
        for _ in range(50):
            with pytest.raises(KeyboardInterrupt):
                interruptible(connection, lambda _: press_ctrl_c())
            asked = interruptible(connection, lambda db: db.execute(SHORT).fetchall())
            assert asked == [(3000 * 1500,)]


def test_somebody_else_who_waits_for_signals_learns_of_them():
    assert within_budget(pressed_beside_an_event_loop) is None


def pressed_beside_an_event_loop():
    heard, hearing = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(hearing, warn_on_full_buffer=False)
    with duckdb.connect() as connection, pytest.raises(KeyboardInterrupt):
        interruptible(connection, lambda db: interruptible(db, lambda _: press_ctrl_c()))
    assert signal.set_wakeup_fd(-1) == hearing
    assert os.read(heard, 9) == bytes([signal.SIGINT])


@pytest.mark.parametrize(
    ("way", "error"), [("rows", duckdb.InterruptException), ("later batches", OSError)]
)
def test_a_query_that_another_thread_interrupts_is_no_damage(tmp_path, way, error):
    make_trace(tmp_path / "x.trace", {"syscalls": []}).close()
    assert within_budget(interrupted_by_a_thread, tmp_path / "x.trace", way, error) is None


def interrupted_by_a_thread(folder, way, error):
    with Trace(folder) as trace:
        connection = trace.connection
        with pytest.raises(error, match="INTERRUPT"), while_it_computes(connection.interrupt):
            WAYS[way](trace)


def test_a_handler_that_only_notes_a_signal_lets_the_query_go_on(tmp_path):
    make_trace(tmp_path / "x.trace", {"syscalls": []}).close()
    assert within_budget(noted, tmp_path / "x.trace") is None


def noted(folder):
    came = []
    signal.signal(signal.SIGTERM, lambda *_: came.append(True))
    query = "SELECT sum((a.range + b.range) % 2) FROM range(25000) a, range(25000) b"
    with Trace(folder) as trace:
        trace.rows("SELECT 1")  # opens the connection
        with while_it_computes(lambda: signal.raise_signal(signal.SIGTERM)):
            assert trace.rows(query) == [(25000 * 12500,)]
    assert came == [True]


def press_ctrl_c():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@contextlib.contextmanager
def while_it_computes(act):
    """Call a function in another thread as soon as the query of the block computes."""

    def wait_and_act():
        wait_until_it_computes(os.getpid())
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_does_not_disturb_the_clean_up(number):
    before = signal.getsignal(number)
    cleaned = []
    with pytest.raises(KeyboardInterrupt), terminable():
        try:
            os.kill(os.getpid(), number)
            time.sleep(60)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            cleaned.append(True)
    assert cleaned and signal.getsignal(number) is before


def test_an_ignored_hangup_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminable():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)

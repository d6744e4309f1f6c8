"""`tracer query`: tables and views in SQL, their examples, and their completion."""

import os
import re

import pandas as pd
import pytest

from tests.conftest import ROOT
from tests.support.traces import make_trace
from tests.support.waiting_steps import make_waiting
from tracer.analysis.cli.query import _answer
from tracer.analysis.views.catalogue import VIEWS
from tracer.probes.errors import BadTrace, UsageError
from tracer.store.trace import ALL_TABLES, Trace

FIXTURE = ROOT / "fixtures" / "lenet.trace"


def one_line(text):
    assert text.count("\n") == 1, text
    assert text.startswith("tracer: ")
    return text


def test_no_progress_bar_is_among_the_rows(tracer):
    query = "SELECT current_setting('enable_progress_bar') AS shown"
    assert tracer("query", FIXTURE, query, "--json").json == [{"shown": False}]


@pytest.mark.slow
def test_a_result_without_end_is_refused_and_takes_no_memory(tracer):
    said = one_line(
        tracer("query", FIXTURE, "FROM generate_series(1, 1000000000000)", status=2).err
    )
    assert "the result of the query takes more than" in said and "LIMIT" in said


def test_a_long_result_is_whole(tmp_path):
    """It is fetched in parts, of which the first have nulls alone in a column."""
    query = (
        "SELECT CASE WHEN i > 240000 THEN i END AS late, i::VARCHAR AS said FROM range(250000) t(i)"
    )
    with make_trace(tmp_path / "t", {"syscalls": []}) as trace:
        found = _answer(trace, query)
        pd.testing.assert_frame_equal(found, trace.connection.execute(query).df())
        assert list(_answer(trace, query + " WHERE i < 0")) == ["late", "said"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT duration FROM syscalls", '"duration" not found'),
        ("SELECT count(*) FROM syscall", "Table with name syscall does not exist"),
        ("SELECT count(*) FROM steps", "Table with name steps does not exist"),
        ("SELECT nothing(ts) FROM syscalls", "nothing does not exist"),
        ("SELECT * FROM '/etc/passwd.csv'", "/etc/passwd.csv"),
        ("SELECT 1; SELECT 2", "2 statements"),
    ],
)
def test_a_wrong_query_in_python_is_refused_and_calls_no_table_damaged(query, said):
    with Trace(FIXTURE) as trace:
        with pytest.raises(UsageError) as refused:
            trace.sql(query)
        assert said in str(refused.value) and "rm -r" not in str(refused.value)
        assert trace.sql("SELECT count(*) AS n FROM syscalls")["n"][0] > 0


def test_a_query_in_python_of_a_table_that_was_not_recorded_says_so(tmp_path):
    with (
        make_trace(tmp_path / "t", {"syscalls": []}) as trace,
        pytest.raises(BadTrace, match="page_cache"),
    ):
        trace.sql("SELECT * FROM page_cache")


def test_the_examples_in_python_of_the_docs_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.trace").symlink_to(FIXTURE)
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "report.md").read_text(), re.S)
    names: dict[str, pd.DataFrame] = {}
    for example in examples:
        exec(example, names)
        assert len(names["frame"])
    assert list(names["frame"]) == ["step", "fetch_stall_ns"]


def test_json_is_one_list_of_rows(tracer):
    rows = tracer(
        "query", FIXTURE, "SELECT name, count(*) AS n FROM phases GROUP BY 1", "--json"
    ).json
    assert {row["name"] for row in rows} >= {"train", "step", "forward"}


def test_the_derived_views_are_there(tracer, tmp_path):
    with make_waiting(tmp_path / "t") as made, Trace(FIXTURE) as recorded:
        tables = set(recorded.tables), set(made.tables)
    assert all(any(set(view.needs) <= there for there in tables) for view in VIEWS.values())
    in_fixture = {name for name, view in VIEWS.items() if set(view.needs) <= tables[0]}
    for trace, views in ((FIXTURE, in_fixture), (tmp_path / "t", VIEWS.keys() - in_fixture)):
        # test_views.py makes each of them alone.
        counts = ", ".join(f"(SELECT count(*) FROM {view}) AS {view}" for view in sorted(views))
        (rows,) = tracer("query", trace, f"SELECT {counts}", "--json").json
        assert rows.keys() == views
        # The fixture's job waited for nothing that events tell of, and no bio was split.
        assert {view for view, count in rows.items() if count == 0} <= {"stalls", "rest_queues"}


def test_a_view_without_its_table_is_one_line(tracer, tmp_path):
    make_trace(tmp_path / "t", {"syscalls": []})
    said = one_line(tracer("query", "t", "SELECT * FROM requests", status=6).err)
    assert "no table block" in said
    assert tracer("query", "t", "SELECT count(*) AS steps FROM syscalls", "--json").json == [
        {"steps": 0}
    ]


def test_help_has_an_example_of_every_table_and_view(tracer):
    shown = tracer("query", "--help").out
    for name in (*ALL_TABLES, *VIEWS):
        assert f" {name}: SELECT" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("begun", "becomes"),
    [
        ("SELECT * FROM sys", "SELECT * FROM syscalls"),
        ("SELECT * FROM sta", "SELECT * FROM stalls"),
        (
            "SELECT * FROM requests WHERE service_l",
            "SELECT * FROM requests WHERE service_latency_ns",
        ),
        ("FROM block_in_phase SELECT rw", "FROM block_in_phase SELECT rwbs"),
    ],
)
def test_names_are_completed(tracer, begun, becomes):
    words = f"tracer query run.trace '{begun}"
    asked = {"_TRACER_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    assert becomes in tracer(env={**os.environ, **asked}).out.splitlines()


DOCUMENTED = re.compile(r"""tracer query \S+ (["'])(SELECT.*?)\1""", re.DOTALL)


def documented():
    """Each query in the documentation, and each example of a table or view."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        yield from (found[2] for found in DOCUMENTED.finditer(page.read_text()))
    yield from (made.example for made in (*ALL_TABLES.values(), *VIEWS.values()))


def test_documented_queries_that_list_or_choose_rows_order_them():
    queries = list(documented())
    listing = [q for q in queries if "LIMIT" in q or not re.search(r"GROUP BY|\w\(", q)]
    assert len(queries) > 40 and len(listing) > 5
    assert [query for query in listing if "ORDER BY" not in query] == []


def test_a_query_from_stdin(tracer):
    assert tracer("query", FIXTURE, "-", "--csv", input="SELECT 23 AS n").out == "n\n23\n"


@pytest.mark.parametrize("sql", ["SELEC", "SELECT * FROM nothing", "", "SELECT 1/"])
def test_a_query_that_fails(tracer, sql):
    one_line(tracer("query", FIXTURE, sql, status=2).err)


def test_a_known_table_that_was_not_recorded_is_named_with_its_option(tracer):
    said = one_line(tracer("query", FIXTURE, "SELECT count(*) FROM Off_CPU", status=6).err)
    assert said.endswith("has no table off_cpu; record it: tracer record -e default,sched ...\n")


def test_a_table_that_no_option_records_is_described(tracer, tmp_path):
    """The recorder makes `phases` from marks; no probe has that name."""
    make_trace(tmp_path / "t", {"syscalls": []})
    said = one_line(tracer("query", "t", "FROM syscalls_in_phase", status=6).err)
    assert said.endswith(
        "no table phases; see what it is made from: tracer query --columns phases\n"
    )


@pytest.mark.parametrize(
    ("sql", "mend"),
    [
        ("FROM syscals", "there is no table or view 'syscals'; did you mean syscalls?"),
        ("FROM wait", "there is no table or view 'wait'; did you mean waits?"),
        ("FROM stepz_in_phase", "did you mean steps?"),
        ("FROM qqq", "choose from syscalls, page_faults, "),
        ("SELECT nam FROM syscalls", "see the columns of a table: tracer query --columns NAME"),
        ("SELEC 1", "see the examples: tracer query --help"),
    ],
)
def test_a_query_that_fails_names_the_mend(tracer, sql, mend):
    assert mend in one_line(tracer("query", FIXTURE, sql, status=2).err)


@pytest.fixture
def copy(tmp_path):
    """A small trace that a query might destroy."""
    rows = [{"ts": n, "tid": 7, "nr": 0, "name": "read"} for n in range(3)]
    with make_trace(tmp_path / "t", {"syscalls": rows, "phases": [{"name": "step"}]}) as trace:
        yield trace


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


HERE = "<here>"
"""A placeholder in queries for a path by which the file of the table syscalls may be written."""


@pytest.mark.parametrize(
    "sql",
    [
        f"COPY phases TO '{HERE}' (USE_TMP_FILE false)",
        f"WITH x AS (COPY phases TO '{HERE}' (USE_TMP_FILE false)) SELECT 1",
        f"FROM (WITH x AS (COPY phases TO '{HERE}' (USE_TMP_FILE false)) FROM x)",
        f"EXPLAIN ANALYZE COPY phases TO '{HERE}' (USE_TMP_FILE false)",
        f"EXPLAIN (ANALYZE) /* SELECT */ COPY phases TO '{HERE}' (USE_TMP_FILE false)",
        f"FROM query('WITH x AS (COPY phases TO ''{HERE}'' (USE_TMP_FILE false)) SELECT 1')",
        f"SELECT 1; COPY phases TO '{HERE}' (USE_TMP_FILE false)",
        f"PREPARE x AS COPY phases TO '{HERE}' (USE_TMP_FILE false)",
        "WITH x AS (INSERT INTO mine VALUES (1) RETURNING *) SELECT * FROM x",
        "INSERT INTO mine VALUES (1)",
        "DROP TABLE mine",
        "CREATE TABLE more AS SELECT 1",
        "EXPORT DATABASE 'x'",
        "IMPORT DATABASE 'x'",
        "ATTACH 'x.db'",
        "ATTACH ':memory:' AS x",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 1",
        "RESET threads",
        "PRAGMA database_list",
        "CALL range(1)",
        "USE memory",
        "CHECKPOINT",
        "BEGIN",
        "CREATE SECRET x (TYPE s3)",
        "FROM read_csv('/etc/passwd')",
        "FROM read_text('/proc/self/environ')",
        "FROM READ_BLOB('/etc/passwd')",
        "FROM glob('/*')",
        "FROM '/etc/passwd'",
        "FROM 'x.csv'",
        f"FROM '{HERE}'",
        f"FROM parquet_metadata('{HERE}')",
        "FROM read_parquet('https://example.com/x.parquet')",
        "SELECT (SELECT content FROM read_text('/etc/passwd'))",
        "EXPLAIN ANALYZE FROM read_text('/etc/passwd')",
        "FROM arrow_scan(1, 2, 3)",
        "FROM enable_logging(storage = 'file', storage_path = '/tmp/x')",
        "FROM json_execute_serialized_sql('{}')",
        "SELECT getenv('HOME')",
        "SELECT 1; SELECT 2",
        "--",
        "SELECT " + "(" * 2000 + "1" + ")" * 2000,
    ],
)
def test_a_query_reads_the_tables_and_nothing_else(copy, sql, tmp_path):
    copy.connection.execute("CREATE TEMP TABLE mine (a INTEGER)")
    before = contents(tmp_path)
    for place in (copy._files["syscalls"].place, tmp_path / "t/events/syscalls.parquet"):
        with pytest.raises(UsageError) as error:
            _answer(copy, sql.replace(HERE, str(place)))
        assert "\n" not in str(error.value) and "/proc/self/fd" not in str(error.value)
    assert contents(tmp_path) == before
    assert copy.sql("SELECT count(*) AS n FROM mine")["n"].tolist() == [0]
    assert copy.sql("SELECT count(*) AS n FROM syscalls")["n"].tolist() == [3]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name FROM syscalls;",
        "-- all of them\nFROM syscalls",
        "FROM syscalls SELECT name",
        "TABLE syscalls",
        "VALUES (1), (2)",
        "WITH x AS (SELECT 1) FROM x",
        "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n < 3) FROM x",
        "SELECT 1 UNION SELECT 2",
        "DESCRIBE syscalls",
        "SHOW TABLES",
        "SUMMARIZE syscalls",
        "EXPLAIN SELECT count(*) FROM syscalls",
        "explain analyze SELECT count(*) FROM syscalls",
        "EXPLAIN (FORMAT json) SELECT 1",
        "PIVOT syscalls ON name IN ('read') USING count(*)",
        "FROM range(3)",
        "SELECT unnest([1, 2])",
        "FROM duckdb_columns() SELECT column_name WHERE table_name = 'syscalls'",
        "FROM syscalls_in_phase",
        "FROM calls",
    ],
)
def test_a_query_that_reads(copy, sql):
    assert len(_answer(copy, sql).columns)


def test_whatever_a_query_gives_is_printed(tracer, copy):
    query = (
        "SELECT [1, 2] AS list, {'a': [1]} AS object, 'x'::BLOB AS bytes, DATE '2020-02-03' AS day,"
        " TIMESTAMP 'infinity' AS never, 1::HUGEINT AS big, NULL AS nothing, 'nan'::DOUBLE AS nan"
    )
    (row,) = tracer("query", "t", query, "--json").json
    assert row["list"] == [1, 2] and row["object"] == {"a": [1]} and row["bytes"] == "x"
    assert (row["day"], row["big"]) == ("2020-02-03", 1)
    assert row["never"] == "infinity" and row["nothing"] is None and row["nan"] is None
    assert "2020-02-03" in tracer("query", "t", query).out
    assert "2020-02-03" in tracer("query", "t", query, "--csv").out


def test_a_formula_is_a_text_in_the_csv_of_a_query(tracer, copy):
    assert tracer("query", "t", "SELECT '=1+1' AS a, -1 AS b", "--csv").out == "a,b\n'=1+1,-1\n"
    assert tracer("query", "t", "SELECT '=1+1' AS a", "--json").json == [{"a": "=1+1"}]


def test_a_text_with_a_carriage_return_is_one_cell_of_a_csv(tracer, copy):
    query = "SELECT 'a' || chr(13) || '=1+1' AS a, 'b' || chr(10) || 'c' AS b, NULL AS c, 1 AS d"
    out = tracer("query", "t", query, "--csv").out.replace("\r", "\n")
    assert out == 'a,b,c,d\n"a\n=1+1","b\nc",,1\n'


def test_json_speaks_to_no_terminal(tracer, copy):
    """The control sequence introducer of 8 bits, and a change of direction."""
    ran = tracer("query", "t", "SELECT chr(155) || '2J' || chr(8238) || 'é' AS a", "--json")
    assert ran.json == [{"a": "\x9b2J\u202eé"}]
    assert ran.out.replace("é", "e").isascii()


@pytest.mark.parametrize("name", [*ALL_TABLES, *VIEWS, "block_in_phase"])
def test_columns_of_a_table_or_view_are_described(tracer, name):
    """Each column of an answer stands in the description, in its order."""
    said = tracer("query", "--columns", name).out.splitlines()
    names = [line.split(" (")[0] for line in said if line.endswith(")") and line[0] != " "]
    declared = {**ALL_TABLES, **VIEWS}[name.removesuffix("_in_phase")].columns
    assert names == [column.name for column in declared]
    assert said[0] == name and max(map(len, said[:-1])) <= 80


def test_columns_of_no_table_are_a_user_s_mistake(tracer):
    said = one_line(tracer("query", "--columns", "wait", status=2).err)
    assert "there is no table or view 'wait'; did you mean waits?" in said
    assert "choose from syscalls" in tracer("query", "--columns", "\x1b[31m", status=2).err

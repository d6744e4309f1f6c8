"""`tracer import` of CSV: what it makes, and what it refuses."""

import pytest


def one_line(text):
    assert text.count("\n") == 1, text
    assert text.startswith("tracer: ")
    return text


class TestImport:
    GOOD = "ts_ns,dev,page,pages,op\n1,8:0,5,2,W\n2,8:0,5,1,W\n3,8:0,9,4,R\n4,8:0,0,0,F\n"

    def test_a_csv_trace_can_be_simulated_and_reported(self, tracer, tmp_path):
        (tmp_path / "in.csv").write_text(self.GOOD)
        tracer("import", "in.csv", "-o", "x.trace", "--format", "csv")
        found = tracer("simulate", "x.trace", "--capacity-pages", "1", "--json").json
        assert (found["requests"], found["unique_pages"], found["disk_writes"]) == (3, 2, 2)
        tables = tracer("report", "x.trace", "--json").json["tables"]
        assert "syscalls" not in tables
        assert tables["flushed_pages"][0]["pages"] == 3
        assert tracer("info", "x.trace", "--json").json["tables"]["block"]["rows"] == 4

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "not a CSV"),
            ("ts_ns,dev,page,pages,op\n", "no rows"),
            ("ts_ns,dev,page,pages\n1,8:0,5,2\n", "not a CSV"),
            ("ts_ns,dev,page,pages,op\n-1,8:0,5,2,W\n", "row 1: a negative time"),
            ("ts_ns,dev,page,pages,op\n5,8:0,5,2,W\n4,8:0,5,2,W\n", "row 2: time goes back"),
            ("ts_ns,dev,page,pages,op\n1,8:0,5,2,X\n", "row 1: an op"),
            ("ts_ns,dev,page,pages,op\n1,8:0,5,0,W\n", "row 1: pages below 1"),
            ("ts_ns,dev,page,pages,op\n1,8:0,-5,1,W\n", "not a CSV"),
            ("ts_ns,dev,page,pages,op\n1,8:0,9223372036854775808,1,W\n", "not in range"),
            ("ts_ns,dev,page,pages,op\n1,8:0,9223372036854775807,1,W\n", "beyond any disk"),
            ("ts_ns,dev,page,pages,op\n1,8:0,1e400,1,W\n", "not a CSV"),
            ("ts_ns,dev,page,pages,op\nNaN,8:0,1,1,W\n", "ts_ns is empty"),
        ],
    )
    def test_a_csv_that_makes_no_sense(self, tracer, tmp_path, text, said):
        (tmp_path / "in.csv").write_text(text)
        ran = tracer("import", "in.csv", "-o", "x.trace", status=6)
        assert said in one_line(ran.err)
        assert not (tmp_path / "x.trace").exists()

    def test_an_existing_output_is_left_alone(self, tracer, tmp_path):
        (tmp_path / "in.csv").write_text(self.GOOD)
        (tmp_path / "x.trace").mkdir()
        assert "exists" in one_line(tracer("import", "in.csv", "-o", "x.trace", status=2).err)
        assert list((tmp_path / "x.trace").iterdir()) == []

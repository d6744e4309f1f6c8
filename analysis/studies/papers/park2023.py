"""Park & Bahn 2023: the kernel's work for training, on the host and in containers.

Means are over models and repeats if no column names the model. The paper's column has the name of
ours with paper_ before it.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import pandas as pd

from tracer.analysis.studies.intervals import PERCENT, SHARE
from tracer.analysis.studies.papers.numbers import numbers
from tracer.analysis.studies.runs import FACTORS
from tracer.analysis.studies.spread import first_repeat, in_order, over_runs, without_limits

_TOP = 10
_CPU_TIME = "task-clock"
"""An event that the paper lacks; our stand-in on machines without hardware counters."""
_PAPER_SETTINGS = {
    "dirty_background_ratio": 10,
    "dirty_ratio": 20,
    "dirty_expire_centisecs": 3000,
    "dirty_writeback_centisecs": 500,
}
"""The settings of Table 7."""
_REASONS = ("periodic", "background", "sync")
"""The reasons of Tables 9 and 10."""
_BETWEEN = {"wakes": 0, "passes": 1}
_CORE = re.compile(r"^cpu_(?:core|atom)/(.+)/$")


def _trainings(frame: pd.DataFrame, but: Collection[str] = ()) -> pd.DataFrame:
    return without_limits(frame[frame["mode"] == "train"], but)


def event_counts(counters: pd.DataFrame, but: Collection[str] = ()) -> pd.DataFrame:
    """Returns Table 5: events in the context of a container's, the daemon's and host processes.

    `counters`: one row per run, event and role (job or daemon) with its value. Events of the two
    kinds of cores of a hybrid CPU are added up, also in the paper's numbers. `but`: limits that
    the runs may have.

    Columns: event, unit (events or ns), container_process, docker_daemon, host_process (per run,
    with _low and _high), container_to_host (over pairs of runs that differ in nothing but the
    place), and the paper's four.
    """
    own = _trainings(counters, but)
    own = own[own["where"].isin(["host", "1"])].assign(event=_one_kind_of_core(own["event"]))
    sums = own.groupby(["id", "role", "event"], sort=False)["value"]
    runs = own.drop_duplicates("id")[["id", *(name for name in FACTORS if name in own)]]
    own = sums.agg(lambda v: v.sum(min_count=len(v))).reset_index().merge(runs, on="id")
    columns = {
        "container_process": (own["where"] == "1") & (own["role"] == "job"),
        "docker_daemon": (own["where"] == "1") & (own["role"] == "daemon"),
        "host_process": (own["where"] == "host") & (own["role"] == "job"),
    }
    paper = numbers("park2023_table5_event_counts")
    paper["event"] = _one_kind_of_core(paper["event"])
    paper = paper.groupby("event", sort=False)[list(columns)].sum().reset_index()
    # All three are 0: the paper's machine did not support the event.
    paper.loc[(paper[list(columns)] == 0).all(axis=1), list(columns)] = None
    found = pd.DataFrame({"event": [_CPU_TIME, *paper["event"]]})
    found["unit"] = found["event"].eq(_CPU_TIME).map({True: "ns", False: "events"})
    for name, those in columns.items():
        spread = over_runs(own[those], ["event"], ["value"]).drop(columns="runs")
        spread.columns = [str(one).replace("value", name) for one in spread.columns]
        found = found.merge(spread, on="event", how="left")
    return found.merge(_to_host(own[own["role"] == "job"]), on="event", how="left").merge(
        _paper_counts(paper, list(columns)), on="event", how="left"
    )


def _one_kind_of_core(events: pd.Series[str]) -> pd.Series[str]:
    return events.map(lambda name: _CORE.sub(r"\1", str(name)))


def _to_host(own: pd.DataFrame) -> pd.DataFrame:
    same = ["event", *(name for name in FACTORS if name in own and name != "where")]
    pairs = own[own["where"] == "1"].merge(
        own[own["where"] == "host"], on=same, suffixes=("", "_host")
    )
    pairs["container_to_host"] = pairs["value"] / pairs["value_host"].where(
        pairs["value_host"] != 0
    )
    pairs = pairs.dropna(subset=["container_to_host"])
    return over_runs(pairs, ["event"], ["container_to_host"]).rename(columns={"runs": "pairs"})


def _paper_counts(paper: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    below = paper["host_process"].where(paper["host_process"] != 0)
    found = paper.assign(container_to_host=paper["container_process"] / below)
    return found.rename(columns={name: f"paper_{name}" for name in [*columns, "container_to_host"]})


def call_chains(chains: pd.DataFrame) -> pd.DataFrame:
    """Returns Table 6: the call chains that led to block_rq_insert.

    `chains`: one row per run, event and chain with its share and write_share of the event's counts
    on the run's own disk, comm and path.

    Columns: where, chain, share (_low, _high) of all such events of a run, write_share (_low,
    _high) of those of writes, runs, comm and path (of the run in which the chain has most events),
    paper_share. A run with such events, but none by a chain, counts as 0 for the chain.
    """
    own = _inserts(chains)
    flat = _of_each_run(own, "share").merge(
        _of_each_run(own[own["write_share"].notna()], "write_share"), how="left"
    )
    kinds = dict.fromkeys(("share", "write_share"), SHARE)
    found = over_runs(flat, ["where", "chain"], list(kinds), kinds)
    top = own.sort_values("count", ascending=False).drop_duplicates(["where", "chain"])
    found = found.merge(top[["where", "chain", "comm", "path"]], how="left")
    paper = numbers("park2023_table6_call_chains").rename(columns={"share": "paper_share"})
    paper["where"] = "1"
    found = found.merge(paper[["where", "chain", "paper_share"]], how="outer")
    found = in_order(found.assign(less=-found["share"]), ["less"])
    return found.drop(columns="less")


def _inserts(chains: pd.DataFrame) -> pd.DataFrame:
    own = _trainings(chains)
    return own[own["event"] == "block:block_rq_insert"]


def _of_each_run(own: pd.DataFrame, value: str) -> pd.DataFrame:
    """Returns a value per run and chain; 0 for a chain that a run lacks."""
    wide = own.pivot_table(index=["where", "id"], columns="chain", values=value, fill_value=0.0)
    return wide.reset_index().melt(id_vars=["where", "id"], value_name=value)


def other_disks(chains: pd.DataFrame) -> str:
    """Returns the share of inserted requests that Table 6 leaves out, in words; "" if not known."""
    shares = _inserts(chains).drop_duplicates("id")["other_disks"].dropna().astype(float)
    if shares.empty:
        return ""
    return (
        f"{shares.mean():.1%} of all insertions of the machine were on other disks and are left out"
        f" (in a run {shares.min():.1%} to {shares.max():.1%})."
    )


def flush_settings(facts: pd.DataFrame) -> pd.DataFrame:
    """Returns Table 7: the kernel's write-back settings.

    `facts`: one row per run; vm has its settings as "NAME VALUE, NAME VALUE". Columns: setting,
    least and most (of the runs; null: not recorded), runs, paper_value (null: not given).
    """
    rows = [
        {"setting": name, "value": float(value)}
        for told in facts["vm"].dropna()
        for name, _, value in (part.strip().rpartition(" ") for part in str(told).split(","))
        if name and value.isdecimal()
    ]
    own = pd.DataFrame(rows, columns=["setting", "value"]).groupby("setting")["value"]
    found = own.agg(least="min", most="max", runs="count").reset_index()
    paper = pd.Series(_PAPER_SETTINGS, name="paper_value").rename_axis("setting").reset_index()
    return found.merge(paper, on="setting", how="outer")


def fault_causes(causes: pd.DataFrame, where: str = "1") -> pd.DataFrame:
    """Returns Table 8: the ten most frequent causes of page faults of containers and daemon.

    `causes`: one row per run, comm, file and symbol with their percent of the run's faults.
    `where`: the place of the runs.

    Columns: rank, task, file, function (null: not known), percent (_low, _high) of a run's faults,
    runs, and the paper's row of that rank: paper_task, paper_file, paper_function, paper_cause,
    paper_percent.
    """
    own = _trainings(causes)
    own = own[own["where"] == where]
    keys = ["comm", "file", "symbol"]
    sums = own.groupby([*keys, "id"], dropna=False)["percent"].sum()
    wide = sums.unstack("id").fillna(0.0)
    wide = wide.loc[wide.mean(axis=1).sort_values(ascending=False).index].head(_TOP)
    flat = wide.reset_index().melt(id_vars=keys, value_name="percent")
    found = over_runs(flat, keys, ["percent"], {"percent": PERCENT})
    found = found.sort_values("percent", ascending=False)
    found = found.rename(columns={"comm": "task", "symbol": "function"})
    found.insert(0, "rank", range(1, len(found) + 1))
    paper = numbers("park2023_table8_page_fault_causes").rename(columns={"location": "function"})
    paper = paper.rename(columns=lambda name: name if name == "rank" else f"paper_{name}")
    return found.merge(paper, on="rank", how="outer")


def writeback_reasons(reasons: pd.DataFrame) -> pd.DataFrame:
    """Returns Tables 9 and 10: reasons of write-backs, by model, in one container and in four.

    `reasons`: one row per run and reason with its writebacks (passes of the flusher) and wakes.

    Columns: where, model, reason, writebacks (of a run), share and wakes (each with _low, _high),
    runs, paper_writebacks, paper_share. A run with write-backs, but none of a reason, counts as 0;
    the paper's reasons have a row even if no run had them.
    """
    own = _trainings(reasons)
    keys, run = ["where", "model", "reason"], ["where", "model", "id"]
    every = pd.DataFrame({"reason": list(dict.fromkeys([*_REASONS, *own["reason"]]))})
    flat = own[run].drop_duplicates().merge(every, how="cross")
    counts = own.groupby([*run, "reason"])[["writebacks", "wakes"]].sum().reset_index()
    flat = flat.merge(counts, on=[*run, "reason"], how="left")
    flat[["writebacks", "wakes"]] = flat[["writebacks", "wakes"]].astype(float).fillna(0.0)
    unknown = own.loc[own["wakes"].isna(), "id"]
    flat["wakes"] = flat["wakes"].where(~flat["id"].isin(unknown))
    flat["share"] = flat["writebacks"] / flat.groupby("id")["writebacks"].transform("sum")
    paper = numbers("park2023_table9_10_writeback_reasons").melt(
        id_vars=["where", "model"], var_name="reason", value_name="paper_writebacks"
    )
    paper["paper_share"] = paper["paper_writebacks"] / paper.groupby(["where", "model"])[
        "paper_writebacks"
    ].transform("sum")
    values = ["writebacks", "share", "wakes"]
    found = over_runs(flat, keys, values, {"share": SHARE}).merge(paper, on=keys, how="outer")
    order = {reason: place for place, reason in enumerate(_REASONS)}
    found["order"] = found["reason"].map(order).fillna(len(order))
    return in_order(found, ["model", "order", "reason"]).drop(columns="order")


def writeback_intervals(intervals: pd.DataFrame) -> pd.DataFrame:
    """Returns Figure 3: intervals between write-backs; the paper draws them without numbers.

    `intervals`: one row per run, between (wakes or passes) and reason with mean_s and std_s.

    Columns: model, where, between, mean_s and std_s (of a run, each with _low, _high), runs.
    """
    own = _trainings(intervals)
    own = own[own["reason"] == "all"]
    found = over_runs(own, ["model", "where", "between"], ["mean_s", "std_s"])
    return _wakes_first(found, ["model"])


def _wakes_first(frame: pd.DataFrame, then: list[str]) -> pd.DataFrame:
    ordered = frame.assign(order=frame["between"].map(_BETWEEN))
    return in_order(ordered, [then[0], "order", *then[1:]]).drop(columns="order")


def interval_spread(quantiles: pd.DataFrame) -> pd.DataFrame:
    """Returns Figure 3: the distribution of the intervals between write-backs.

    `quantiles`: one row per run, between (wakes or passes) and share (0 to 1) with interval_s.
    Columns: model, where, between, share, interval_s (the mean of that quantile over the runs,
    _low, _high), runs.
    """
    own = _trainings(quantiles)
    found = over_runs(own, ["model", "where", "between", "share"], ["interval_s"])
    return _wakes_first(found, ["model", "share"])


def page_heat(heat: pd.DataFrame, where: str = "1") -> pd.DataFrame:
    """Returns Figure 4: pages by the time of their write-back, in one run of each model.

    `heat`: one row per run and box with write-backs. `where`: the place of the runs. The run is
    that of `first_repeat`. Columns: model, from_s, to_s, first_page, last_page, writebacks. An
    empty box has no row.
    """
    own = _trainings(heat)
    own = first_repeat(own[own["where"] == where], ["model"])
    columns = ["model", "from_s", "to_s", "first_page", "last_page", "writebacks"]
    return own[columns].reset_index(drop=True)

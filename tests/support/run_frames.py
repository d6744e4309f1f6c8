"""Frames of the runs of a study, row by row, and verdicts on claims by them."""

from tracer.analysis.studies import claims


def run(where="1", repeat=0, model="alexnet", mode="train", **more):
    """The columns that every row of an extract has, and a run's own."""
    factors = {"model": model, "where": where, "mode": mode, "repeat": repeat}
    return {"id": f"{model}-{mode}-{where}-{more.get('workers')}-{repeat}", **factors, **more}


def row(frame, **wanted):
    """The only row with these values."""
    for name, value in wanted.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1, frame
    return frame.iloc[0]


def verdict(id, frame):
    """The verdict on the claim `id` by a frame of runs."""
    return next(found for found in claims.judge(frame) if found.id == id)

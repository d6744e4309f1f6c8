"""Facts about PyTorch, from a line of letters."""

from tracer.store.span import Span

F, C, N, B, O = "fetch", "forward", "no_grad", "backward", "optimizer"  # noqa: E741
END, LOAD = "exhausted", "data_load"


def facts(text, pid=7, iteration=1 << 20):
    """A line of letters into facts, 10 ns each, 2 ns apart; L begins another pass over the data.

    F fetch, C forward, N forward without gradients, B backward, O optimizer, X a fetch that finds
    the end, S checkpoint. The small letters l, f and x are those of a second loader.
    """
    found = []
    at = 100
    passes = {True: iteration, False: iteration + (1 << 30)}
    batches = dict.fromkeys(passes, 0)
    for sign in text.replace(" ", ""):
        letter, which = sign.upper(), sign.isupper()
        names = {"F": F, "X": F, "C": C, "N": C, "B": B, "O": O, "L": LOAD, "S": "checkpoint"}
        span = Span(at, pid, pid, names[letter], end=at + 10, source="")
        if letter == "L":
            passes[which] += 1 << 20
            batches[which] = 0
        elif letter in "FX":
            span.epoch, span.step = passes[which], batches[which]
            batches[which] += 1
        elif letter in "CN":
            span.step = int(letter == "C")
        found.append(span)
        if letter == "X":
            found.append(Span(at + 2, pid, pid, END, end=at + 10))
        at += 12
    return found


def rows(found, name):
    """The epoch and step of each phase of a name."""
    return [(s.epoch, s.step) for s in found if s.name == name]

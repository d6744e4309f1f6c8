"""Phases that threads mark, and the epochs and passes in them.

phase_times.py        one row per phase, with its end if its process was killed
spans.py              phases as arrays
nesting.py            the innermost phase at each time, and the steps in each phase
segments.py           the time of each thread, cut where its innermost phase changes
epoch_passes.py       passes of a process through its epochs, which cross-validation begins anew
partial_epochs.py     epochs of which a recording has only a part
marked_together.py    epochs that several processes mark together
"""

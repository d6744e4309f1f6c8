"""The results of simulations, as facts from which text, JSON, figures and pages are made.

question.py  the settings of a simulation: capacity, policy, buffer, devices, identity
paper.py     the model `paper`: one capacity, closed form; both identities side by side
curve.py     the model `curve`: every capacity, and the capacity that an improvement needs
timed.py     the model `timed`: latencies, destages, use of the devices, wear
sweep.py     many simulations from one file, in parallel
reads.py     the reads that a layer behind the page cache gets
"""

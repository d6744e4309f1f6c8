"""What a simulation comes to, as facts that text, JSON, figures and pages are made of.

question.py   what is asked: capacity, policy, buffer, devices, identity
paper.py      the model `paper`: one capacity, closed form; both identities beside each other
curve.py      the model `curve`: every capacity, and the capacity that an improvement needs
timed.py      the model `timed`: latencies, destages, use of the devices, wear
sweep.py      many questions from one file, in parallel
"""

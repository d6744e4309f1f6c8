"""Figures: each a function of a frame that returns a plotly figure, whatever the frame is of.

style.py            colours, what becomes of names, and how all look alike
dots.py             values with their intervals, in panels, beside those of a paper
timeline.py         lanes that share an axis of time
heat.py             write-backs by place or file on that axis
park2023.py         write-backs, page faults, block requests, the flush layer (seed 001)
prashanthi2023.py   minibatches, use of the machine, energy (seed 000)
prashanthi2022.py   epochs by what they waited for (seed 002)
"""

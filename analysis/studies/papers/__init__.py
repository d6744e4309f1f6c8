"""The papers' tables and figures, of our runs beside the papers' numbers; one file a paper.

Each function takes a frame of `analysis.studies.extracts`, or of runs and their measures, and gives
a frame: ours, its 95 % interval over repeats and models, the paper's. Null: not measured, or not
told by the paper.

park2023.py          seed 001, Tables 5 to 10, Figures 3, 4, 6
prashanthi2023.py    seed 000, Figures 1 to 5 and 7
prashanthi2022.py    seed 002, Figures 2, 4, 5
numbers.py           what the papers give
parts.py             all of them, with their titles and figures
made.py              one of them, made of a frame
of_traces.py         those that apply to any traces, not only to the runs of a study
"""

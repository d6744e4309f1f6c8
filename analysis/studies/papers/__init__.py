"""The papers' tables and figures, made from our runs, beside the papers' numbers.

There is one file per paper. Each function takes a frame of `tracer.analysis.studies.extracts`, or
of runs and their measures, and returns a frame: our value, its 95 % interval over repeats and
models, and the paper's value. Null: not measured, or not given by the paper.

park2023.py              Park & Bahn 2023, Tables 5 to 10, Figures 3, 4, 6
prashanthi2023.py        Prashanthi et al. 2023, Figures 1 to 5 and 7
prashanthi2022.py        Prashanthi et al. 2022, Figures 2, 3, 4, 5, 8, 10
numbers.py               the numbers of the papers
parts.py                 all tables and figures, with their titles
made.py                  one table or figure, made from a frame
of_traces.py             the tables and figures that apply to any trace, not only to a study's runs
park2023_layer.py        its Figure 6
park2023_limits.py       its tables of runs with limited memory and disks
prashanthi2022_modes.py  energy and time of epochs by power mode
serving.py               runs of the deployment image, for which no paper gives numbers
"""

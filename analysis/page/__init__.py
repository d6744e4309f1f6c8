"""Pages: self-contained HTML that loads nothing and escapes all names.

base.py         parts of all pages: template, content security policy, style, script, plotly
cells.py        values as text
tables.py       frames as tables that can be sorted
summary.py      summary of a recording: targets, machine, end, losses, cost
trace.py        the page of a trace
comparison.py   the page of a comparison
what_if.py      the page of a simulation or of a sweep
explanation.py  the page of an explanation
memory.py       the page of a prediction
paper_table.py  a paper's table on the page of a trace
pictures.py     figures as image files
templates/      base.html.j2, page.css, page.js; and one template per page
"""

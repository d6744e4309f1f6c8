"""Pages: self-contained HTML that fetches nothing, and in which every name is only ever text.

base.py       what all pages share: template, policy, style, script, plotly
cells.py      values as text
tables.py     frames as tables that can be sorted
summary.py    what was recorded, of which machine, and how it went
trace.py      the page of a trace
comparison.py the page of a comparison
templates/    base.html.j2, page.css, page.js; and a template a page
"""

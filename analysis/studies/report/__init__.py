"""The report of a study: what is in it, apart from the formats that it is written in.

contents.py   claims, tables, figures, the machine, losses
page.py       one HTML page that needs nothing but itself
markdown.py   GitHub markdown, without figures
"""

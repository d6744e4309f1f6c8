"""The report of a study: its contents, separate from its formats.

contents.py       claims, tables, figures, the machine, losses
page.py           one self-contained HTML page
markdown.py       GitHub markdown, with links to its figures
picture_files.py  the figures as files beside the markdown
claim_rows.py     claims as rows, the same in every format
"""

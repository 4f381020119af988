"""One module per figure, which declares a `FigureSpec`; `registry` lists them, `python -m analysis.figures` draws them.

A figure takes its runs from `selection` and its numbers from `metrics`, and draws with `drawing`.
"""

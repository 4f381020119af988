"""Figures of what the device sees, drawn from traced runs (paper figures 3, 4, 8 to 11).

One module per figure, as in `analysis.figures`, whose `registry` lists them too.
"""

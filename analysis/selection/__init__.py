"""Which runs may be compared, and why the others may not. Every figure, claim and table takes its runs from here.

Setting: a value that must be equal within a figure. Axis: a column that the figure draws. Point: one value of each
axis; the runs of a point are its repetitions. Setup: machine, SSD, kernel, LRU and link; a claim is judged in each.
"""

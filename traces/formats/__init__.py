"""One module for each text format of a trace: ours, as `scripts/*.bt` print them, and those of other tools.

A format turns lines into columns. Clocks, depths and tensors are worked out in the modules above.
"""

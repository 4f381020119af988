"""Text formats of traces, one module each: those of `scripts/*.bt`, and those of other tools.

A format turns lines into columns. It computes no depth and no tensor: the modules above do.
"""

"""Quantities, each defined once: from frames of runs and of device commands to numbers, medians and intervals.

Nothing here knows which runs a figure chooses, or draws.
"""

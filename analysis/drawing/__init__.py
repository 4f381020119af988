"""How figures look: style, layout, captions, curves over memory limits.

Nothing here chooses runs or computes a metric.
"""

"""A results folder as tidy frames: documents checked, logs and traces read, what cannot be used left out with a reason.

Nothing is computed from a number here that a figure could draw.
"""

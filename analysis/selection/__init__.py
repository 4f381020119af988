"""Which runs may stand side by side, and why the others may not.

Every figure, claim and table takes its runs from here.
"""

"""What this machine can do, found by trying it, and the system packages that it needs.

Nothing imports this package; it is no part of the code that results are measured with.
"""

"""Paths for a tensor's rows between pinned memory and storage: through the page cache, and around it.

A path moves bytes and counts them. `pipeline` decides when it does so and in which thread.
"""

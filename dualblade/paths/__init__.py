"""The ways of a tensor's rows between pinned memory and storage: through the page cache, and around it.

A path moves bytes and counts them. When it is asked to, and by which thread, is decided in `pipeline`.
"""

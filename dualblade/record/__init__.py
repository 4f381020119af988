"""Records of a store: readable rows and checksums, the log of operations, and where the time went.

Nothing here decides what is read or written.
"""

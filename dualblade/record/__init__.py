"""What a store did: readable rows and checksums, the log of operations, and where the time went.

Records only: nothing here decides what is read or written.
"""

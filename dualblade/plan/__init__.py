"""The plan of a run: the budget, the residency of layers and the extents (paper, Algorithm 1 and "LBA bind").

Arithmetic, and the kernel's numbers that it starts from. Nothing here opens or writes a file of the KV cache.
"""

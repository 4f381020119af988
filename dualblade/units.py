"""Units of sizes, and the largest."""

KIB, MIB, GIB, GB = 2**10, 2**20, 2**30, 10**9

END_BYTE = 2**62  # beyond any device, and half of what a file offset can say (off_t)

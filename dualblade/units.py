"""Units of sizes, and an upper limit of all sizes."""

KIB, MIB, GIB, GB = 2**10, 2**20, 2**30, 10**9

END_BYTE = 2**62  # beyond any device, and half of the largest file offset (off_t)

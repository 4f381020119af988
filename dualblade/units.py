"""Units of sizes."""

KIB, MIB, GIB, GB = 2**10, 2**20, 2**30, 10**9

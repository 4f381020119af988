"""The harness: from a configuration to a result on disk, one point of a sweep at a time."""

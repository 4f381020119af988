"""Targets of the direct path, where its LBAs lie: a preallocated file, a block device or an NVMe namespace.

A target is opened, checked, claimed and released here. Reading and writing it is the job of `paths`.
"""

"""What the direct path's LBAs lie on: a preallocated file, a block device or an NVMe namespace.

A target is opened, checked, claimed and given back here. Reading and writing it is the job of `paths`.
"""

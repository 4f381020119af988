"""What became of blocks that a run gave back to the device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Deallocation:
    """Bytes given back to the device, and how many of those that were read back were zero.

    Not every device promises zeroes, and one that works in larger units may keep the edges of a run (NVM command set,
    "Deallocated or Unwritten Logical Blocks").
    """

    bytes: int
    checked_bytes: int
    zero_bytes: int
    zeroes_promised: bool

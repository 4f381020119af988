"""The interface of all targets, and the result of giving blocks back to a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Deallocation:
    """Bytes that a device was told to deallocate, and how many of those read back were zero.

    Not every device promises zeroes, and one that works in larger units may keep the edges of a range (NVM command set,
    "Deallocated or Unwritten Logical Blocks").
    """

    bytes: int
    checked_bytes: int
    zero_bytes: int
    zeroes_promised: bool


class Target(Protocol):
    """A file descriptor for direct I/O; this run owns its bytes from `first_byte` on.

    `namespace_id` is 0, or the NVMe namespace to which the descriptor sends native commands.
    """

    backend: str

    @property
    def deallocated(self) -> Deallocation | None:
        """Return the blocks that a closed target deallocated on its device; None for a file."""
        ...

    @property
    def fd(self) -> int: ...

    @property
    def first_byte(self) -> int: ...

    @property
    def chunk_bytes(self) -> int:
        """Largest size of one command: the configured one, or less."""
        ...

    @property
    def namespace_id(self) -> int: ...

    def __str__(self) -> str: ...

    def direct(self) -> bool:
        """Whether I/O on the descriptor bypasses the page cache now."""
        ...

    def resident_bytes(self) -> int:
        """Bytes of the target in the page cache; 0 if every transfer was direct."""
        ...

    def device_facts(self) -> dict[str, object] | None:
        """The device's identity and the blocks in use, for result.json; None if other parts of it tell them."""
        ...

    def close(self, *, in_doubt: bool = False) -> None:
        """Release the space and close; safe to call twice.

        `in_doubt`: commands that timed out may still write.
        """
        ...

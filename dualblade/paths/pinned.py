"""Pinned buffers: page-locked, aligned memory shared by the storage device and the device link (paper, "Co-DMA").

They are anonymous private memory in transparent huge pages. A device takes a limited number of segments per request, so
physically contiguous memory makes direct I/O faster. (Python's default anonymous mmap is shared memory, which is
charged as page cache and gets no huge pages.)
"""

from __future__ import annotations

import contextlib
import mmap
import resource
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dualblade.errors import BudgetError, StorageError
from dualblade.linux.libc import mlock

HUGE_PAGE_BYTES = 2 << 20


@dataclass(frozen=True)
class PinnedState:
    """Buffers as the kernel granted them: bytes, whether all are locked, and bytes in huge pages."""

    buffers: int
    bytes: int
    locked: bool
    huge_page_bytes: int


def pinned_bytes(size_bytes: int) -> int:
    """Round the size of a buffer up to whole huge pages."""
    return -(-size_bytes // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES


class PinnedBuffer:
    """`size_bytes` of touched, page-locked memory, aligned to a huge page."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = pinned_bytes(size_bytes)
        self._mapping = self._map(self.size_bytes + HUGE_PAGE_BYTES)
        whole = torch.frombuffer(self._mapping, dtype=torch.uint8)
        start = -whole.data_ptr() % HUGE_PAGE_BYTES
        self._data = whole[start : start + self.size_bytes].zero_()
        self._given_up = False
        self.address = self._data.data_ptr()
        self.locked = mlock(self.address, self.size_bytes)

    @staticmethod
    def _map(size_bytes: int) -> mmap.mmap:
        try:
            mapping = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise BudgetError(
                f"no memory for a pinned buffer of {size_bytes:,} bytes ({error.strerror}); a buffer holds one K or V "
                "tensor, so use a smaller batch, a shorter context or fewer copy threads"
            ) from None
        with contextlib.suppress(OSError):  # a kernel without transparent huge pages refuses
            mapping.madvise(mmap.MADV_HUGEPAGE)
        mapping.madvise(mmap.MADV_DONTFORK)
        return mapping

    @property
    def data(self) -> torch.Tensor:
        """The buffer's bytes, uint8.

        Raises:
            StorageError: the buffer was given up.
        """
        if self._given_up:
            raise StorageError(
                "the device still owes answers to commands that timed out, and may write to the memory that this "
                "transfer needs; close the cache and create a new one"
            )
        return self._data

    def give_up(self) -> None:
        """Refuse all later use: the kernel still has commands that may write to the bytes."""
        self._given_up = True


def pinned_state(buffers: list[PinnedBuffer]) -> PinnedState:
    """Read from the kernel what it granted (proc(5), smaps: AnonHugePages)."""
    ranges = [range(buffer.address, buffer.address + buffer.size_bytes) for buffer in buffers]
    huge_kib, inside = 0, False
    with open("/proc/self/smaps") as smaps:
        for line in smaps:
            name, *rest = line.split()
            if "-" in name and not name.endswith(":"):
                start, end = (int(part, 16) for part in name.split("-"))
                inside = any(span.start < end and start < span.stop for span in ranges)
            elif inside and name == "AnonHugePages:":
                huge_kib += int(rest[0])
    return PinnedState(
        buffers=len(buffers),
        bytes=sum(buffer.size_bytes for buffer in buffers),
        locked=all(buffer.locked for buffer in buffers),
        huge_page_bytes=huge_kib << 10,
    )


def warn_unless_locked(buffers: Sequence[PinnedBuffer]) -> None:
    """Warn the caller of KVStore when the kernel has not locked all of its buffers."""
    if all(buffer.locked for buffer in buffers):
        return
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "all there is" if limit_bytes == resource.RLIM_INFINITY else f"{limit_bytes:,} bytes"
    need_bytes = sum(buffer.size_bytes for buffer in buffers)
    warnings.warn(
        f"the buffers may be swapped out: they take {need_bytes:,} bytes and this process may lock {limit}; "
        f"raise the memlock limit (ulimit -l {need_bytes >> 10}, or limits.conf(5)), or use fewer copy threads or a "
        "smaller batch",
        RuntimeWarning,
        stacklevel=3,
    )

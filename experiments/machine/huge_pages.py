"""Huge pages for fio's buffers: reserved while they are needed, and always released."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from dualblade.linux.proc import meminfo
from experiments.machine.journal import Journal

NR_HUGEPAGES = Path("/proc/sys/vm/nr_hugepages")  # of the default size
HUGE_PAGE_BYTES = 2 << 20


@contextlib.contextmanager
def reserved(size_bytes: int, journal: Journal) -> Iterator[bool]:
    """Reserve `size_bytes` in huge pages inside the block; yield whether they are there (it takes root and memory)."""
    missing = _pages(size_bytes) - _free_pages()
    if missing <= 0 or not os.access(NR_HUGEPAGES, os.W_OK):
        yield missing <= 0
        return
    before = int(NR_HUGEPAGES.read_text())
    with journal.undo("write_value", str(NR_HUGEPAGES), str(before)):
        NR_HUGEPAGES.write_text(str(before + missing))
        yield _free_pages() >= _pages(size_bytes)


def _pages(size_bytes: int) -> int:
    return -(-size_bytes // HUGE_PAGE_BYTES)


def _free_pages() -> int:
    """Return the free huge pages of this size (proc(5), meminfo); 0 if the kernel has none, or another default size."""
    memory = meminfo()
    return memory["HugePages_Free"] if memory.get("Hugepagesize") == HUGE_PAGE_BYTES else 0

"""Group 1's path: one file per tensor, through the kernel's page cache, as FlexLLMGen does it.

Each operation maps the tensor's file, copies through the pinned buffer, and unmaps (`page_cache_io: mmap`), or reads
and writes the file (`rw`). The kernel decides what stays; with `evict`, whatever an operation touched is written back
and dropped before it returns, and the kernel is asked whether the pages are gone.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from dualblade.errors import StorageError
from dualblade.geometry import KVGeometry, TensorId
from dualblade.page_residency import resident_bytes
from dualblade.pinned import PinnedBuffer
from dualblade.placement import Placement, locate
from dualblade.storage_config import StorageConfig

_EVICT_TRIES = 3
_RUSAGE_BLOCK_BYTES = 512  # getrusage(2) counts ru_inblock and ru_oublock in these


@dataclass
class Eviction:
    """Bytes that were to leave the page cache, and those that the kernel still held afterwards."""

    asked_bytes: int = 0
    left_bytes: int = 0


class PageCache:
    """Reads and writes rows of the tensors bound to it, each in a file of its own that has no name.

    A file without a name vanishes with the process, however it ends; what was never written back is never written.
    """

    def __init__(self, geometry: KVGeometry, layers: Sequence[int], storage: StorageConfig, *, evict: bool) -> None:
        self.name = "page_cache_evict" if evict else "page_cache"
        self.io = storage.page_cache_io
        self._geometry = geometry
        self._evict = evict
        self.evictions: dict[int, Eviction] = {}
        self._files: dict[TensorId, int] = {}
        self._copy: Callable[[int, int, torch.Tensor, bool], None] = _copy_mapped if self.io == "mmap" else _copy_rw
        try:
            for layer in layers:
                for kind in ("k", "v"):
                    tensor = TensorId(layer, kind)
                    self._files[tensor] = _create(Path(storage.directory), tensor, geometry.tensor_bytes(tensor))
        except BaseException:
            self.close()
            raise

    def lead_bytes(self, tensor: TensorId, first_row: int) -> int:
        """Rows start at the beginning of the pinned buffer: files have no alignment to respect."""
        return 0

    def write(self, tensor: TensorId, rows: range, buffer: PinnedBuffer, thread: int) -> None:
        """Copy rows from the buffer into the file's pages."""
        with self._evicting(tensor, thread, dirty=True) as fd:
            self._copy(fd, *self._place(tensor, rows, buffer), True)

    def read(self, tensor: TensorId, rows: range, buffer: PinnedBuffer, thread: int) -> None:
        """Copy rows from the file's pages into the buffer; the kernel reads in those that it no longer holds."""
        with self._evicting(tensor, thread, dirty=False) as fd:
            self._copy(fd, *self._place(tensor, rows, buffer), False)

    def crop(self, tensor: TensorId, n_rows: int, buffer: PinnedBuffer, thread: int) -> None:
        """Nothing to do: rows beyond `n_rows` are overwritten in place."""

    def _place(self, tensor: TensorId, rows: range, buffer: PinnedBuffer) -> tuple[int, torch.Tensor]:
        row_bytes = self._geometry.row_bytes(tensor)
        return rows.start * row_bytes, buffer.data[: len(rows) * row_bytes]

    @contextlib.contextmanager
    def _evicting(self, tensor: TensorId, thread: int, *, dirty: bool) -> Iterator[int]:
        fd = self._files[tensor]
        yield fd
        if self._evict:
            held_bytes = resident_bytes(fd)
            left_bytes = _drop(fd, dirty)
            tally = self.evictions.setdefault(thread, Eviction())
            tally.asked_bytes += held_bytes
            tally.left_bytes += left_bytes

    @property
    def eviction(self) -> Eviction:
        """Evictions of all threads together."""
        tallies = list(self.evictions.values())
        return Eviction(sum(t.asked_bytes for t in tallies), sum(t.left_bytes for t in tallies))

    def device_bytes(self, thread: int) -> tuple[int, int]:
        """Block I/O that the kernel accounts to the calling thread: read, and dirtied or written."""
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        return usage.ru_inblock * _RUSAGE_BLOCK_BYTES, usage.ru_oublock * _RUSAGE_BLOCK_BYTES

    def placement(self, tensor: TensorId) -> Placement:
        """Where the tensor's file lies on the device."""
        return locate(self._files[tensor], 0, self._geometry.tensor_bytes(tensor))

    def io_mode(self) -> dict[str, object]:
        return {"io": self.io}

    def close(self) -> None:
        """Close the files, which gives back their pages and their space."""
        while self._files:
            _, fd = self._files.popitem()
            os.close(fd)


def _create(directory: Path, tensor: TensorId, size_bytes: int) -> int:
    """A file of `size_bytes` with its space reserved: a store into a mapping that finds no space kills the process."""
    path = directory / f".{tensor.kind}{tensor.layer}-{os.getpid()}"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"cannot create a file in storage.directory={directory}: {error.strerror}") from None
    path.unlink()
    try:
        os.posix_fallocate(fd, 0, size_bytes)
    except OSError as error:
        os.close(fd)
        free = os.statvfs(directory)
        raise StorageError(
            f"cannot reserve {size_bytes:,} bytes for {tensor} in storage.directory={directory}: {error.strerror} "
            f"({free.f_bavail * free.f_frsize:,} bytes free); free some space, choose another folder or a larger scale"
        ) from None
    return fd


def _copy_mapped(fd: int, offset_bytes: int, staged: torch.Tensor, write: bool) -> None:
    """One copy between the pinned buffer and a shared mapping of the file, page faults and all."""
    size_bytes = offset_bytes + staged.numel()
    with mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as mapping:
        pages = torch.frombuffer(mapping, dtype=torch.uint8, count=staged.numel(), offset=offset_bytes)
        if write:
            pages.copy_(staged)
        else:
            staged.copy_(pages)
        del pages  # the mapping cannot be closed while a tensor shows it


def _copy_rw(fd: int, offset_bytes: int, staged: torch.Tensor, write: bool) -> None:
    """The same by read and write calls, repeated until every byte has moved."""
    view = memoryview(staged.numpy().data)
    while view:
        moved = os.pwrite(fd, view, offset_bytes) if write else os.preadv(fd, [view], offset_bytes)
        if moved == 0:
            raise StorageError(f"the tensor's file ends at byte {offset_bytes:,}: is another program truncating it?")
        offset_bytes += moved
        view = view[moved:]


def _drop(fd: int, dirty: bool) -> int:
    """Write back, drop, and prove it: bytes of the file still in the page cache. Only clean, unmapped pages can go."""
    left_bytes = 0
    for _ in range(_EVICT_TRIES):
        if dirty:
            _write_back(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        left_bytes = resident_bytes(fd)
        if left_bytes == 0:
            break
    return left_bytes


def _write_back(fd: int) -> None:
    try:
        os.fdatasync(fd)
    except OSError as error:
        what = "no space left" if error.errno == errno.ENOSPC else error.strerror
        raise StorageError(f"the kernel could not write back a tensor's file: {what}") from None

"""Group 1's path: one file per tensor, through the kernel's page cache, as FlexLLMGen does it.

Each operation maps the tensor's file, copies through the pinned buffer, and unmaps (`page_cache_io: mmap`), or reads
and writes the file (`rw`). The kernel decides which pages stay. With `evict`, each operation writes its pages back,
drops them, and asks the kernel whether they are gone.
"""

from __future__ import annotations

import resource
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from dualblade.config.storage import StorageConfig
from dualblade.errors import StorageError
from dualblade.geometry import KVGeometry, TensorId
from dualblade.linux.fiemap import Placement, locate
from dualblade.linux.mounts import MEMORY_FILE_SYSTEMS, file_system_of
from dualblade.linux.page_residency import resident_bytes
from dualblade.paths.base import DeviceBytes, Worker
from dualblade.paths.tensor_file import TensorFile

_RUSAGE_BLOCK_BYTES = 512  # getrusage(2) counts ru_inblock and ru_oublock in these


@dataclass
class Eviction:
    """Bytes that an eviction asked the kernel to drop, and bytes that it still held afterwards."""

    asked_bytes: int = 0
    left_bytes: int = 0


class PageCache:
    """Reads and writes rows of the tensors bound to it, each in a file of its own.

    Raises:
        StorageError: there is no room for the files, or no disk below them.
    """

    def __init__(self, geometry: KVGeometry, layers: Sequence[int], storage: StorageConfig, *, evict: bool) -> None:
        self.name = "page_cache_evict" if evict else "page_cache"
        self.io = storage.page_cache_io
        self._row_bytes = {tensor: layout.row_bytes for tensor, layout in geometry.tensors.items()}
        self._evict = evict
        self.evictions: dict[int, Eviction] = {}
        self._files: dict[TensorId, TensorFile] = {}
        directory = Path(storage.directory)
        file_system = _refuse_memory(directory)
        try:
            for tensor, layout in geometry.tensors.items():
                if tensor.layer in layers:
                    self._files[tensor] = TensorFile(directory, tensor, layout.size_bytes, self.io)
            reports = file_system != "overlay" and all(file.reports_losses for file in self._files.values())
            if not (reports or evict or storage.checksum):  # an eviction learns of losses by fsync
                _warn_of_hidden_losses(directory, file_system)
        except BaseException:
            self.close()
            raise

    def lead_bytes(self, tensor: TensorId, first_row: int) -> int:
        """Return 0: a file needs no alignment, so rows start at the beginning of the buffer."""
        return 0

    def write(self, tensor: TensorId, rows: range, worker: Worker) -> DeviceBytes:
        """Copy rows from the worker's buffer into the file's pages.

        Raises:
            StorageError: storage failed, now or while it wrote earlier rows back.
        """
        before, file = _block_io(), self._files[tensor]
        file.write(*self._place(tensor, rows, worker))
        self._finish(file, worker, dirty=True)
        return _block_io_since(before)

    def read(self, tensor: TensorId, rows: range, worker: Worker) -> DeviceBytes:
        """Copy rows from the file's pages into the worker's buffer; the kernel reads pages that it no longer holds.

        Raises:
            StorageError: storage failed, now or while it wrote earlier rows back.
        """
        before, file = _block_io(), self._files[tensor]
        file.read(*self._place(tensor, rows, worker))
        self._finish(file, worker, dirty=False)
        return _block_io_since(before)

    def crop(self, tensor: TensorId, n_rows: int, worker: Worker) -> None:
        """Forget the rows from `n_rows` on; later writes go over them."""
        if n_rows == 0:
            self._files[tensor].renew()

    def _place(self, tensor: TensorId, rows: range, worker: Worker) -> tuple[int, torch.Tensor]:
        row_bytes = self._row_bytes[tensor]
        return rows.start * row_bytes, worker.buffer.data[: len(rows) * row_bytes]

    def _finish(self, file: TensorFile, worker: Worker, *, dirty: bool) -> None:
        if self._evict:
            tally = self.evictions.setdefault(worker.number, Eviction())
            tally.asked_bytes += resident_bytes(file.fd)
            tally.left_bytes += file.evict(dirty=dirty)
        file.check()

    @property
    def eviction(self) -> Eviction:
        """Add up the evictions of all workers."""
        tallies = list(self.evictions.values())
        return Eviction(sum(t.asked_bytes for t in tallies), sum(t.left_bytes for t in tallies))

    def placement(self, tensor: TensorId) -> Placement:
        """Where the tensor's file lies on the device."""
        return locate(self._files[tensor].fd, 0, self._files[tensor].size_bytes)

    def io_mode(self) -> dict[str, object]:
        return {"io": self.io}

    def close(self) -> None:
        """Close the files, which frees their pages and their space."""
        while self._files:
            _, file = self._files.popitem()
            file.close()


def _refuse_memory(directory: Path) -> str:
    """Return the folder's file system; refuse one that keeps its files in memory."""
    file_system = file_system_of(directory)
    if file_system in MEMORY_FILE_SYSTEMS:
        raise StorageError(
            f"storage.directory={directory} lies on {file_system}, which is memory, so the KV cache would never leave "
            "it; choose a folder on a disk"
        )
    return file_system


def _warn_of_hidden_losses(directory: Path, file_system: str) -> None:
    warnings.warn(
        f"storage.directory={directory} lies on {file_system}, where this kernel does not report that the disk failed "
        "to store written data; choose a folder on the disk itself (of a container: a volume), or checksum=True",
        RuntimeWarning,
        stacklevel=2,
    )


def _block_io() -> DeviceBytes:
    """Block I/O that the kernel has accounted to the calling thread: read, and dirtied or written."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return DeviceBytes(usage.ru_inblock * _RUSAGE_BLOCK_BYTES, usage.ru_oublock * _RUSAGE_BLOCK_BYTES)


def _block_io_since(before: DeviceBytes) -> DeviceBytes:
    now = _block_io()
    return DeviceBytes(now.read - before.read, now.written - before.written)

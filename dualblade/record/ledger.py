"""The ledger of a store: which rows are written completely, their checksums, and, in a run, every operation."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass

import numpy as np
import torch

from dualblade.errors import IntegrityError
from dualblade.geometry import KVGeometry, TensorId
from dualblade.paths.base import NO_BYTES, DeviceBytes, Transfer
from dualblade.paths.ring import Op
from dualblade.record.io_log import Operation


@dataclass
class Stopwatch:
    """Times of one transfer on storage and on the link, and the device's bytes for it.

    A transfer may come in pieces: the first one starts it and the last one ends it.
    """

    storage_start_ns: int = 0
    storage_end_ns: int = 0
    link_start_ns: int = 0
    link_end_ns: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    def on_storage(self, start_ns: int, moved: DeviceBytes = NO_BYTES) -> None:
        """Note that storage worked from `start_ns` until now, and what its device moved."""
        self.storage_start_ns = self.storage_start_ns or start_ns
        self.storage_end_ns = time.monotonic_ns()
        self.read_bytes += moved.read
        self.written_bytes += moved.written

    def on_link(self, start_ns: int) -> None:
        """Note that the link copied from `start_ns` until now."""
        self.link_start_ns = self.link_start_ns or start_ns
        self.link_end_ns = time.monotonic_ns()

    def copied_with_storage(self) -> None:
        """Note that the copies over the link lie within the storage transfer."""
        self.link_start_ns, self.link_end_ns = self.storage_start_ns, self.storage_end_ns


class ReadableRows:
    """The number of completely written rows of each tensor; a read beyond them raises."""

    def __init__(self, geometry: KVGeometry) -> None:
        self._rows = dict.fromkeys(geometry.tensors, 0)

    def written(self, tensor: TensorId, rows: range) -> None:
        """Make rows readable, unless a failed write left a gap before them."""
        if rows.start <= self._rows[tensor]:
            self._rows[tensor] = max(self._rows[tensor], rows.stop)

    def crop(self, tensor: TensorId, n_rows: int) -> None:
        self._rows[tensor] = min(self._rows[tensor], n_rows)

    def check(self, tensor: TensorId, rows: range) -> None:
        if rows.stop > self._rows[tensor]:
            raise IntegrityError(
                f"{tensor}: rows {rows.start}..{rows.stop - 1} were asked for, but only {self._rows[tensor]} rows were "
                "written completely: an earlier write failed; crop to what is there, or to 0, or create a new cache"
            )


class Checksums:
    """A CRC-32 for each row of each tensor, taken before the write and compared after the read."""

    def __init__(self, geometry: KVGeometry) -> None:
        self._crc = {tensor: np.zeros(geometry.capacity_tokens, dtype=np.uint32) for tensor in geometry.tensors}

    def record(self, tensor: TensorId, rows: range, data: torch.Tensor) -> None:
        """Keep the checksums of rows that are about to be written; `data` holds their bytes."""
        self._crc[tensor][rows.start : rows.stop] = self._of_rows(rows, data)

    def verify(self, tensor: TensorId, rows: range, data: torch.Tensor) -> None:
        """Compare rows that were just read.

        Raises:
            IntegrityError: a row differs.
        """
        differs = self._of_rows(rows, data) != self._crc[tensor][rows.start : rows.stop]
        if differs.any():
            raise IntegrityError(
                f"{tensor}: row {rows.start + int(differs.argmax())} read back differs from what was written "
                f"({int(differs.sum())} of {len(rows)} rows); do not trust this storage"
            )

    @staticmethod
    def _of_rows(rows: range, data: torch.Tensor) -> np.ndarray:
        lines = data.numpy().reshape(len(rows), -1)
        return np.fromiter((zlib.crc32(line.data) for line in lines), dtype=np.uint32, count=len(rows))


class Ledger:
    """Refuses to read rows that were not written; no two threads use it for one tensor at the same time.

    With `keep_log` it lists all operations: four for each layer and token, about 500 bytes each.
    """

    def __init__(self, geometry: KVGeometry, *, checksum: bool, keep_log: bool) -> None:
        self.operations: list[Operation] = []
        self._keep_log = keep_log
        self._readable = ReadableRows(geometry)
        self._checksums = Checksums(geometry) if checksum else None

    def writing(self, transfer: Transfer, data: torch.Tensor) -> None:
        """Note the bytes that are about to be written."""
        if self._checksums:
            self._checksums.record(transfer.tensor, transfer.rows, data)

    def written(self, transfer: Transfer, thread: int, watch: Stopwatch) -> None:
        """Note that all rows were written."""
        self._readable.written(transfer.tensor, transfer.rows)
        if self._keep_log:
            self._log(transfer, thread, "write", watch)

    def reading(self, transfer: Transfer) -> None:
        """Check that all rows were written.

        Raises:
            IntegrityError: some were not.
        """
        self._readable.check(transfer.tensor, transfer.rows)

    def read(self, transfer: Transfer, thread: int, watch: Stopwatch, data: torch.Tensor) -> None:
        """Note that the rows have arrived as `data`.

        Raises:
            IntegrityError: they differ from what was written.
        """
        if self._checksums:
            self._checksums.verify(transfer.tensor, transfer.rows, data.cpu())
        if self._keep_log:
            self._log(transfer, thread, "read", watch)

    def crop(self, tensor: TensorId, n_rows: int) -> None:
        """Note that rows from `n_rows` on are gone.

        Raises:
            IntegrityError: some of the rows before them were not written.
        """
        self._readable.check(tensor, range(n_rows))
        self._readable.crop(tensor, n_rows)

    def _log(self, transfer: Transfer, thread: int, op: Op, watch: Stopwatch) -> None:
        tensor, rows = transfer.tensor, transfer.rows
        self.operations.append(
            Operation(
                phase=transfer.moment.phase,
                iteration=transfer.moment.iteration,
                layer=tensor.layer,
                kind=tensor.kind,
                op=op,
                path=transfer.path.name,
                thread=thread,
                first_row=rows.start,
                rows=len(rows),
                bytes=transfer.device.nbytes,
                device_read_bytes=watch.read_bytes,
                device_written_bytes=watch.written_bytes,
                storage_start_ns=watch.storage_start_ns,
                storage_end_ns=watch.storage_end_ns,
                link_start_ns=watch.link_start_ns,
                link_end_ns=watch.link_end_ns,
            )
        )

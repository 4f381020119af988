"""The ledger of a store: what has been written completely, what its bytes were, and, in a run, every operation."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch

from dualblade.geometry import KVGeometry, TensorId
from dualblade.paths.base import Path, Transfer
from dualblade.paths.ring import Op
from dualblade.record.integrity import Checksums, ReadableRows
from dualblade.record.io_log import Operation


class Stopwatch:
    """When a transfer was on its way to or from storage, and over the link, and what the device moved for it.

    A transfer may come in pieces: the first begins it and the last ends it.
    """

    def __init__(self) -> None:
        self.storage_start_ns = self.storage_end_ns = self.link_start_ns = self.link_end_ns = 0
        self.read_bytes = self.written_bytes = 0

    @contextlib.contextmanager
    def on_storage(self, path: Path, thread: int) -> Iterator[None]:
        read_bytes, written_bytes = path.device_bytes(thread)
        self.storage_start_ns = self.storage_start_ns or time.monotonic_ns()
        yield
        self.storage_end_ns = time.monotonic_ns()
        read_after_bytes, written_after_bytes = path.device_bytes(thread)
        self.read_bytes += read_after_bytes - read_bytes
        self.written_bytes += written_after_bytes - written_bytes

    @contextlib.contextmanager
    def on_link(self) -> Iterator[None]:
        self.link_start_ns = self.link_start_ns or time.monotonic_ns()
        yield
        self.link_end_ns = time.monotonic_ns()

    def copied_as_it_came(self) -> None:
        """The copies over the link lie within the storage transfer."""
        self.link_start_ns, self.link_end_ns = self.storage_start_ns, self.storage_end_ns


class Ledger:
    """Guards reads by what was written; its threads enter different tensors.

    With `keep_log` it lists all operations, some 500 bytes each; there are four for each layer and token.
    """

    def __init__(self, geometry: KVGeometry, *, checksum: bool, keep_log: bool) -> None:
        self.operations: list[Operation] = []
        self._keep_log = keep_log
        self._geometry = geometry
        self._readable = ReadableRows(geometry)
        self._checksums = Checksums(geometry) if checksum else None

    def writing(self, transfer: Transfer, data: torch.Tensor) -> None:
        """`data` holds the bytes that are about to be written."""
        if self._checksums:
            self._checksums.record(transfer.tensor, transfer.rows, data)

    def written(self, transfer: Transfer, thread: int, watch: Stopwatch) -> None:
        """The rows are on their path, all of them."""
        self._readable.written(transfer.tensor, transfer.rows)
        self._log(transfer, thread, "write", watch)

    def reading(self, transfer: Transfer) -> None:
        """Raises IntegrityError unless all rows were written completely."""
        self._readable.check(transfer.tensor, transfer.rows)

    def read(self, transfer: Transfer, thread: int, watch: Stopwatch, data: torch.Tensor) -> None:
        """The rows have arrived as `data`; raises IntegrityError if they are not what was written."""
        if self._checksums:
            self._checksums.verify(transfer.tensor, transfer.rows, data.cpu())
        self._log(transfer, thread, "read", watch)

    def crop(self, tensor: TensorId, n_rows: int) -> None:
        """Rows from `n_rows` on are no longer there. Raises IntegrityError unless all before them are."""
        self._readable.check(tensor, range(n_rows))
        self._readable.crop(tensor, n_rows)

    def _log(self, transfer: Transfer, thread: int, op: Op, watch: Stopwatch) -> None:
        if not self._keep_log:
            return
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
                bytes=len(rows) * self._geometry.tensors[tensor].row_bytes,
                device_read_bytes=watch.read_bytes,
                device_written_bytes=watch.written_bytes,
                storage_start_ns=watch.storage_start_ns,
                storage_end_ns=watch.storage_end_ns,
                link_start_ns=watch.link_start_ns,
                link_end_ns=watch.link_end_ns,
            )
        )

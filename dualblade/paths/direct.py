"""Group 2's path: tensors at contiguous LBAs, moved between the pinned buffer and the device without the page cache.

Rows need not fill whole blocks. The bytes of each tensor's last, part-filled block stay in memory: its tail. The next
write puts the tail in front of its rows. So a write never has to read, and every shape works without padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial

import torch

from dualblade.config.storage import StorageConfig
from dualblade.errors import StorageError
from dualblade.geometry import KVGeometry, TensorId
from dualblade.linux.fiemap import Placement, locate
from dualblade.paths.base import DeviceBytes, FinishIo, Worker
from dualblade.paths.ring import DeviceClock, Mirror, Op, OpStats, Pending, Ring
from dualblade.plan.extents import LbaMap, Piece, Span, bind, pieces
from dualblade.targets.open import open_target


class NvmeDirect:
    """Reads and writes rows of the tensors bound to it; each worker has a ring of its own, found by its number."""

    name = "direct"

    def __init__(
        self, geometry: KVGeometry, layers: Sequence[int], storage: StorageConfig, workers: Sequence[Worker]
    ) -> None:
        self._storage = storage
        sizes = [(tensor, layout.size_bytes) for tensor, layout in geometry.tensors.items() if tensor.layer in layers]
        self._row_bytes = {tensor: geometry.tensors[tensor].row_bytes for tensor, _ in sizes}
        self.target = open_target(storage, bind(sizes, storage.lba_bytes).size_bytes)
        self.lba_map: LbaMap = bind(sizes, storage.lba_bytes, self.target.first_byte // storage.lba_bytes)
        self._tails: dict[TensorId, torch.Tensor] = {}
        self._in_doubt: set[TensorId] = set()
        self._clock = DeviceClock(storage.pace) if storage.pace else None
        self._rings: list[Ring] = []
        try:
            for worker in workers:
                self._rings.append(self._open_ring(worker.depth(storage.queue_depth)))
                self._register(worker)
        except BaseException:
            self.close()
            raise

    def _open_ring(self, queue_depth: int) -> Ring:
        return Ring(
            self.target.fd,
            str(self.target),
            queue_depth=queue_depth,
            first_byte=self.target.first_byte,
            end_byte=self.target.first_byte + self.lba_map.size_bytes,
            block_bytes=self._storage.lba_bytes,
            namespace_id=self.target.namespace_id,
            iopoll=self._storage.iopoll,
            clock=self._clock,
        )

    def _register(self, worker: Worker) -> None:
        """Let the kernel pin the worker's buffer once, if it can; only native commands gain from it.

        A stride is a multiple of the block size, so that up to one block of each may stay unused.
        """
        if self.target.namespace_id:
            stride_bytes = worker.stride_bytes(worker.depth(self._storage.queue_depth))
            stride_bytes -= stride_bytes % self._storage.lba_bytes
            buffer = worker.buffer
            self._rings[-1].register(buffer.address, buffer.size_bytes, self.target.chunk_bytes, stride_bytes)

    def lead_bytes(self, tensor: TensorId, first_row: int) -> int:
        """Offset in the buffer at which row `first_row` must lie so that the transfer begins on a block."""
        return first_row * self._row_bytes[tensor] % self._storage.lba_bytes

    def write(self, tensor: TensorId, rows: range, worker: Worker) -> DeviceBytes:
        """Write rows that lie in the worker's buffer behind `lead_bytes`, with the tensor's tail in front of them."""
        return self.start_write(tensor, rows, worker)()

    def read(self, tensor: TensorId, rows: range, worker: Worker) -> DeviceBytes:
        """Read rows into the worker's buffer behind `lead_bytes`."""
        return self.start_read(tensor, rows, worker)()

    def start_write(self, tensor: TensorId, rows: range, worker: Worker) -> FinishIo:
        """Queue a `write` behind the worker's other transfers; calling the result waits for it.

        A write to a tensor must be finished before the next one starts: its tail is the head of the next.
        """
        self._refuse_if_in_doubt(tensor)
        span = self._span(tensor, rows)
        data = worker.buffer.data
        if span.lead_bytes:
            data[: span.lead_bytes] = self._tails[tensor]
        end_byte = span.lead_bytes + len(rows) * self._row_bytes[tensor]
        data[end_byte : span.size_bytes].zero_()
        tail = data[end_byte - end_byte % self._storage.lba_bytes : end_byte].clone()
        return partial(self._finish_write, self._start("write", worker, span, data.data_ptr()), worker, tensor, tail)

    def _finish_write(self, pending: Pending, worker: Worker, tensor: TensorId, tail: torch.Tensor) -> DeviceBytes:
        try:
            moved = self._wait(pending, worker)
        finally:
            if pending.in_doubt:
                self._in_doubt.add(tensor)
        self._tails[tensor] = tail
        return moved

    def start_read(self, tensor: TensorId, rows: range, worker: Worker) -> FinishIo:
        """Queue a `read` behind the worker's other transfers; calling the result waits for it."""
        span = self._span(tensor, rows)
        return partial(self._wait, self._start("read", worker, span, worker.buffer.data.data_ptr()), worker)

    def pieces(self, tensor: TensorId, rows: range, piece_bytes: int) -> Iterator[Piece]:
        """Divide rows into pieces that can be read one by one."""
        return pieces(self._span(tensor, rows), len(rows) * self._row_bytes[tensor], piece_bytes)

    def start_piece(self, piece: Piece, worker: Worker, at_byte: int) -> FinishIo:
        """Queue a read of one piece to `at_byte` of the worker's buffer, as `start_read` does."""
        address = worker.buffer.data.data_ptr() + at_byte
        return partial(self._wait, self._start("read", worker, piece, address), worker)

    def start_mirrored(self, tensor: TensorId, rows: range, worker: Worker, device: torch.Tensor) -> FinishIo:
        """Queue a read to contiguous host memory: each command's data is copied there when the command completes.

        All such reads of a worker share its buffer, which must hold one command for each in flight.
        """
        span = self._span(tensor, rows)
        rows_bytes = len(rows) * self._row_bytes[tensor]
        mirror = Mirror(device.data_ptr(), span.lead_bytes, rows_bytes, worker.buffer.size_bytes)
        pending = self._start("read", worker, span, worker.buffer.data.data_ptr(), mirror)
        return partial(self._wait, pending, worker)

    def crop(self, tensor: TensorId, n_rows: int, worker: Worker) -> None:
        """Forget the rows from `n_rows` on; read the block in which the others end, since it is the new tail."""
        self._refuse_if_in_doubt(tensor)
        end_byte = n_rows * self._row_bytes[tensor]
        tail_bytes = end_byte % self._storage.lba_bytes
        if tail_bytes:
            span = self.lba_map.span(tensor, end_byte - tail_bytes, end_byte)
            self._wait(self._start("read", worker, span, worker.buffer.data.data_ptr()), worker)
        self._tails[tensor] = worker.buffer.data[:tail_bytes].clone()

    def _refuse_if_in_doubt(self, tensor: TensorId) -> None:
        """Refuse a tensor with a write that the device may still carry out, over newer ones."""
        if tensor in self._in_doubt:
            raise StorageError(
                f"a write of {tensor} timed out without an answer, and the device may carry it out over newer tokens; "
                "close the cache and create a new one"
            )

    def _span(self, tensor: TensorId, rows: range) -> Span:
        row_bytes = self._row_bytes[tensor]
        return self.lba_map.span(tensor, rows.start * row_bytes, rows.stop * row_bytes)

    def _start(self, op: Op, worker: Worker, span: Span | Piece, address: int, mirror: Mirror | None = None) -> Pending:
        return self._rings[worker.number].start(
            op, worker.buffer, address, span.offset_bytes, span.size_bytes, self.target.chunk_bytes, mirror
        )

    def _wait(self, pending: Pending, worker: Worker) -> DeviceBytes:
        """Wait for a transfer; the ring counts the bytes, since the kernel does not account native commands."""
        try:
            moved_bytes = self._rings[worker.number].wait(pending, self._storage.timeout_s)
        finally:
            if pending.in_doubt:
                worker.buffer.give_up()
        return DeviceBytes(read=moved_bytes) if pending.op == "read" else DeviceBytes(written=moved_bytes)

    def stats(self, op: Op) -> OpStats:
        """Add up what all rings have done."""
        stats = [ring.stats[op] for ring in self._rings]
        return OpStats(sum(s.commands for s in stats), sum(s.depth_sum for s in stats), sum(s.bytes for s in stats))

    def placement(self, tensor: TensorId) -> Placement:
        """Where the tensor's extent lies on the device."""
        extent, block = self.lba_map.extents[tensor], self._storage.lba_bytes
        return locate(self.target.fd, extent.first_lba * block, extent.n_blocks * block)

    def io_mode(self) -> dict[str, object]:
        """The mode in force, as read back from the kernel."""
        return {
            "backend": self.target.backend,
            "o_direct": self.target.direct() if not self.target.namespace_id else None,
            "passthrough": bool(self.target.namespace_id),
            "lba_bytes": self._storage.lba_bytes,
            "chunk_bytes": self.target.chunk_bytes,
            "queue_depth": self._storage.queue_depth,
            "registered_buffers": all(ring.registered for ring in self._rings),
            "iopoll": self._storage.iopoll,
            "pace": dataclasses.asdict(self._storage.pace) if self._storage.pace else None,
            "resident_bytes_after": self.target.resident_bytes(),
            "device": self.target.device_facts(),
        }

    def close(self) -> None:
        """Close the rings, then release the space."""
        for ring in self._rings:
            ring.close()
        self.target.close(in_doubt=any(ring.in_doubt for ring in self._rings))

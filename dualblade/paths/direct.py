"""Group 2's path: tensors at contiguous LBAs, moved between the pinned buffer and the device without the page cache.

Rows need not fill whole blocks. The bytes of the last, part-filled block of each tensor stay in memory (its tail) and
are written again in front of the next row, so a write never reads, and no shape is padded or refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import torch

from dualblade.config.storage import StorageConfig
from dualblade.errors import StorageError
from dualblade.geometry import KVGeometry, TensorId
from dualblade.linux.fiemap import Placement, locate
from dualblade.paths.base import Finish
from dualblade.paths.pinned import PinnedBuffer
from dualblade.paths.ring import DeviceClock, Mirror, Op, OpStats, Pending, Ring
from dualblade.plan.extents import LbaMap, Piece, Span, bind, pieces
from dualblade.targets.open import open_target


class NvmeDirect:
    """Reads and writes rows of the tensors bound to it; each thread has a ring of its own, as deep as `depths` says."""

    name = "direct"

    def __init__(
        self, geometry: KVGeometry, layers: Sequence[int], storage: StorageConfig, depths: Sequence[int]
    ) -> None:
        self._geometry = geometry
        self._storage = storage
        tensors = [TensorId(layer, kind) for layer in layers for kind in ("k", "v")]
        sizes = [(tensor, geometry.tensors[tensor].size_bytes) for tensor in tensors]
        self.target = open_target(storage, bind(sizes, storage.lba_bytes).size_bytes)
        self.lba_map: LbaMap = bind(sizes, storage.lba_bytes, self.target.first_byte // storage.lba_bytes)
        self._tails: dict[TensorId, torch.Tensor] = {}
        self._in_doubt: set[TensorId] = set()
        self._clock = DeviceClock(storage.pace) if storage.pace else None
        self._rings: list[Ring] = []
        try:
            for queue_depth in depths:
                self._rings.append(self._open_ring(queue_depth))
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

    def register(self, thread: int, buffer: PinnedBuffer, stride_bytes: int) -> None:
        """Have the kernel pin a thread's buffer once, where it can; only native commands profit.

        The thread's transfers begin at multiples of `stride_bytes`, less than a block of which may be left unused.
        """
        if self.target.namespace_id:
            stride_bytes -= stride_bytes % self._storage.lba_bytes
            self._rings[thread].register(buffer.address, buffer.size_bytes, self.target.chunk_bytes, stride_bytes)

    def lead_bytes(self, tensor: TensorId, first_row: int) -> int:
        """Where in the pinned buffer row `first_row` must start so that the transfer begins on a block."""
        return first_row * self._geometry.tensors[tensor].row_bytes % self._storage.lba_bytes

    def write(self, tensor: TensorId, rows: range, buffer: PinnedBuffer, thread: int) -> None:
        """Write rows that lie in the buffer behind `lead_bytes`, with the tensor's tail put in front of them."""
        self.start_write(tensor, rows, buffer, thread)()

    def read(self, tensor: TensorId, rows: range, buffer: PinnedBuffer, thread: int) -> None:
        """Read rows into the buffer behind `lead_bytes`."""
        self.start_read(tensor, rows, buffer, thread)()

    def start_write(self, tensor: TensorId, rows: range, buffer: PinnedBuffer, thread: int) -> Finish:
        """Queue a `write` behind the thread's other transfers; it is done when the call that this returns comes back.

        Writes to one tensor must be finished one by one: the tail of each is the head of the next.
        """
        self._refuse_if_in_doubt(tensor)
        span = self._span(tensor, rows)
        block = self._storage.lba_bytes
        if span.lead_bytes:
            buffer.data[: span.lead_bytes] = self._tails[tensor]
        end_byte = span.lead_bytes + len(rows) * self._geometry.tensors[tensor].row_bytes
        buffer.data[end_byte : span.size_bytes].zero_()
        tail = buffer.data[end_byte - end_byte % block : end_byte].clone()
        pending = self._start("write", buffer, span, thread)

        def finish() -> None:
            try:
                self._wait(pending, buffer, thread)
            finally:
                if pending.in_doubt:
                    self._in_doubt.add(tensor)
            self._tails[tensor] = tail

        return finish

    def start_read(self, tensor: TensorId, rows: range, buffer: PinnedBuffer, thread: int) -> Finish:
        """Queue a `read` behind the thread's other transfers; it is done when the call that this returns comes back."""
        pending = self._start("read", buffer, self._span(tensor, rows), thread)
        return lambda: self._wait(pending, buffer, thread)

    def pieces(self, tensor: TensorId, rows: range, piece_bytes: int) -> Iterator[Piece]:
        """Rows in pieces that can be read one by one."""
        return pieces(self._span(tensor, rows), len(rows) * self._geometry.tensors[tensor].row_bytes, piece_bytes)

    def start_piece(self, piece: Piece, buffer: PinnedBuffer, at_byte: int, thread: int) -> Finish:
        """Queue a piece's read to `at_byte` of the buffer, as `start_read` does."""
        pending = self._start("read", buffer, piece, thread, at_byte=at_byte)
        return lambda: self._wait(pending, buffer, thread)

    def start_mirrored(
        self, tensor: TensorId, rows: range, buffer: PinnedBuffer, device: torch.Tensor, thread: int
    ) -> Finish:
        """Queue a read through the buffer to contiguous host memory: each command's data is copied as it completes.

        All such reads of a thread share the buffer, which has to hold one command for each in flight.
        """
        span = self._span(tensor, rows)
        rows_bytes = len(rows) * self._geometry.tensors[tensor].row_bytes
        mirror = Mirror(device.data_ptr(), span.lead_bytes, rows_bytes, buffer.size_bytes)
        pending = self._start("read", buffer, span, thread, mirror)
        return lambda: self._wait(pending, buffer, thread)

    def crop(self, tensor: TensorId, n_rows: int, buffer: PinnedBuffer, thread: int) -> None:
        """Forget the rows from `n_rows` on: fetch the block they end in, which is the tail of the next write."""
        self._refuse_if_in_doubt(tensor)
        end_byte = n_rows * self._geometry.tensors[tensor].row_bytes
        tail_bytes = end_byte % self._storage.lba_bytes
        if tail_bytes:
            span = self.lba_map.span(tensor, end_byte - tail_bytes, end_byte)
            self._wait(self._start("read", buffer, span, thread), buffer, thread)
        self._tails[tensor] = buffer.data[:tail_bytes].clone()

    def _refuse_if_in_doubt(self, tensor: TensorId) -> None:
        """A write that was given up may still be carried out, over newer ones."""
        if tensor in self._in_doubt:
            raise StorageError(
                f"the device still owes an answer to a write of {tensor} that was given up, and may carry it out over "
                "newer tokens; close the cache and make it anew"
            )

    def _span(self, tensor: TensorId, rows: range) -> Span:
        row_bytes = self._geometry.tensors[tensor].row_bytes
        return self.lba_map.span(tensor, rows.start * row_bytes, rows.stop * row_bytes)

    def _start(
        self,
        op: Op,
        buffer: PinnedBuffer,
        span: Span | Piece,
        thread: int,
        mirror: Mirror | None = None,
        at_byte: int = 0,
    ) -> Pending:
        return self._rings[thread].start(
            op,
            buffer,
            buffer.data.data_ptr() + at_byte,
            span.offset_bytes,
            span.size_bytes,
            self.target.chunk_bytes,
            mirror,
        )

    def _wait(self, pending: Pending, buffer: PinnedBuffer, thread: int) -> None:
        try:
            self._rings[thread].wait(pending, self._storage.timeout_s)
        finally:
            if pending.in_doubt:
                buffer.give_up()

    def stats(self, op: Op) -> OpStats:
        """What all threads' rings have done together."""
        stats = [ring.stats[op] for ring in self._rings]
        return OpStats(sum(s.commands for s in stats), sum(s.depth_sum for s in stats), sum(s.bytes for s in stats))

    def device_bytes(self, thread: int) -> tuple[int, int]:
        """Bytes that the device has moved for this thread, as the ring counts them at completion.

        The kernel's own account per process does not know native commands.
        """
        stats = self._rings[thread].stats
        return stats["read"].bytes, stats["write"].bytes

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
        """Close the rings, then give the space back."""
        for ring in self._rings:
            ring.close()
        self.target.close(in_doubt=any(ring.in_doubt for ring in self._rings))

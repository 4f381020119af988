"""The reader for links with a DMA engine: one thread reads pieces into a ring of pinned memory, another copies them."""

from __future__ import annotations

import contextlib
import queue
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from dualblade.config.device import ReadAheadConfig
from dualblade.paths.base import FinishIo, Transfer, Worker
from dualblade.paths.pinned import PinnedBuffer
from dualblade.pipeline.link import Finish, Link
from dualblade.pipeline.read_queue import QueuedRead, ReadQueue
from dualblade.pipeline.threads import start_thread
from dualblade.plan.extents import Piece
from dualblade.record.ledger import Ledger

# Pieces that the link has at once: the current one and the next.
ON_LINK = 2


@dataclass(frozen=True)
class _StartedPiece:
    """A piece that goes through part `slot` of the ring; `finish` is None if its read could not be started."""

    read: QueuedRead
    piece: Piece
    slot: int
    finish: FinishIo | None


class PieceReader:
    """Reads piece by piece while the ring has room; a second thread serves the link."""

    def __init__(self, size: ReadAheadConfig, link: Link, ledger: Ledger, number: int) -> None:
        buffer = PinnedBuffer(size.pieces * size.piece_bytes)
        self.worker = Worker(number, buffer, piece_bytes=size.piece_bytes)
        self._piece_bytes = size.piece_bytes
        self._link = link
        self._ledger = ledger
        self._reads = ReadQueue(ledger)
        self._to_start: deque[tuple[QueuedRead, Piece]] = deque()
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._arrived: queue.SimpleQueue[_StartedPiece | None] = queue.SimpleQueue()
        for slot in range(size.pieces):
            self._free.put(slot)
        link.pin([buffer])
        self._threads = [start_thread(self._read), start_thread(self._serve_link)]

    def load(self, transfer: Transfer, last_write: Future[None] | None) -> Future[None]:
        return self._reads.add(transfer, last_write)

    def close(self) -> None:
        self._reads.close()
        for thread in self._threads:
            thread.join()

    def _read(self) -> None:
        started: deque[_StartedPiece] = deque()
        while True:
            piece = self._start_next(wait=not started)
            if piece:
                started.append(piece)
            elif started:
                self._arrived.put(self._finish_read(started.popleft()))
            else:
                self._arrived.put(None)
                return

    def _start_next(self, *, wait: bool) -> _StartedPiece | None:
        """Begin to read the next piece; None without `wait`: none can begin now; with it: the queue is closed."""
        while not self._to_start:
            read = self._reads.next(wait=wait)
            if read is None:
                return None
            self._split(read)
        try:
            slot = self._free.get(block=wait)
        except queue.Empty:
            return None
        read, piece = self._to_start.popleft()
        finish = None
        if not read.future.done():
            start_ns = time.monotonic_ns()
            with read.failing():
                finish = read.path.start_piece(piece, self.worker, slot * self._piece_bytes)
                read.watch.on_storage(start_ns)
        return _StartedPiece(read, piece, slot, finish)

    def _split(self, read: QueuedRead) -> None:
        pieces = list(read.path.pieces(read.transfer.tensor, read.transfer.rows, self._piece_bytes))
        self._to_start.extend((read, piece) for piece in pieces)
        if not pieces:
            read.end()

    def _finish_read(self, started: _StartedPiece) -> _StartedPiece:
        if started.finish:
            start_ns = time.monotonic_ns()
            with started.read.failing():
                started.read.watch.on_storage(start_ns, started.finish())
        return started

    def _serve_link(self) -> None:
        """Copy the pieces that have arrived, in order; the link always has the next one while it copies one."""
        copying: deque[tuple[_StartedPiece, Finish | None]] = deque()
        more = True
        while more or copying:
            arrived = None
            if more and len(copying) < ON_LINK:
                with contextlib.suppress(queue.Empty):
                    arrived = self._arrived.get(block=not copying)
                    more = arrived is not None
            if arrived:
                copying.append((arrived, self._start_copy(arrived)))
            elif copying:
                self._finish_copy(*copying.popleft())

    def _start_copy(self, arrived: _StartedPiece) -> Finish | None:
        """Start the copy of a piece; None if its read has failed."""
        read, run = arrived.read, arrived.piece.run_bytes
        if read.future.done():
            return None
        start_byte = arrived.slot * self._piece_bytes + arrived.piece.lead_bytes
        start_ns = time.monotonic_ns()
        with read.failing():
            finish = self._link.start_up(
                read.transfer.device_bytes[run.start : run.stop],
                self.worker.buffer.data[start_byte : start_byte + len(run)],
                read.transfer.computed,
            )
            read.watch.on_link(start_ns)
            return finish
        return None

    def _finish_copy(self, arrived: _StartedPiece, finish: Finish | None) -> None:
        """Free the piece's part of the ring; the last piece ends its read."""
        read, device = arrived.read, arrived.read.transfer.device_bytes
        if finish:
            start_ns = time.monotonic_ns()
            with read.failing():
                finish()
                read.watch.on_link(start_ns)
                if arrived.piece.run_bytes.stop == len(device):
                    self._ledger.read(read.transfer, self.worker.number, read.watch, device)
                    read.end()
        self._free.put(arrived.slot)

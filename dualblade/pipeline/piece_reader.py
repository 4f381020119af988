"""The reader in front of a DMA engine: pieces go through a ring of pinned memory, from one thread to another."""

from __future__ import annotations

import contextlib
import queue
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from dualblade.config.device import ReadAheadConfig
from dualblade.paths.base import Finish, Transfer
from dualblade.paths.pinned import PinnedBuffer
from dualblade.pipeline.link import Link
from dualblade.pipeline.read_queue import Load, ReadQueue, rows_as_bytes, start_thread
from dualblade.plan.extents import Piece
from dualblade.record.ledger import Ledger

# Pieces that the link has at once: the one on its way, and the next.
ON_LINK = 2


@dataclass(frozen=True)
class _Flight:
    """A piece on its way through `slot` of the ring; one that could not be started has no `finish`."""

    load: Load
    piece: Piece
    slot: int
    finish: Finish | None


class PieceReader:
    """Reads piece by piece as the ring has room; a thread of its own serves the link."""

    def __init__(self, size: ReadAheadConfig, link: Link, ledger: Ledger, thread: int) -> None:
        self.buffer = PinnedBuffer(size.pieces * size.piece_bytes)
        self._piece_bytes = size.piece_bytes
        self._link = link
        self._ledger = ledger
        self._thread = thread
        self._loads = ReadQueue(ledger)
        self._to_start: deque[tuple[Load, Piece]] = deque()
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._arrived: queue.SimpleQueue[_Flight | None] = queue.SimpleQueue()
        for slot in range(size.pieces):
            self._free.put(slot)
        link.pin([self.buffer])
        self._workers = [start_thread(self._read), start_thread(self._serve_link)]

    def depth(self, queue_depth: int) -> int:
        return queue_depth

    def stride_bytes(self, depth: int) -> int:
        return self._piece_bytes

    def load(self, transfer: Transfer, last_write: Future[None] | None) -> Future[None]:
        load = Load(transfer, last_write)
        self._loads.put(load)
        return load.future

    def close(self) -> None:
        self._loads.close()
        for worker in self._workers:
            worker.join()

    def _read(self) -> None:
        started: deque[_Flight] = deque()
        while True:
            flight = self._start_next(wait=not started)
            if flight:
                started.append(flight)
            elif started:
                self._arrived.put(self._landed(started.popleft()))
            else:
                self._arrived.put(None)
                return

    def _start_next(self, *, wait: bool) -> _Flight | None:
        """Begin to read the next piece. None: without `wait`, none can begin now; with it, there will be no more."""
        while not self._to_start:
            load = self._loads.next(wait=wait)
            if load is None:
                return None
            self._split(load)
        try:
            slot = self._free.get(block=wait)
        except queue.Empty:
            return None
        load, piece = self._to_start.popleft()
        finish = None
        if not load.future.done():
            with load.failing(), load.watch.on_storage(load.path, self._thread):
                finish = load.path.start_piece(piece, self.buffer, slot * self._piece_bytes, self._thread)
        return _Flight(load, piece, slot, finish)

    def _split(self, load: Load) -> None:
        pieces = list(load.path.pieces(load.transfer.tensor, load.transfer.rows, self._piece_bytes))
        self._to_start.extend((load, piece) for piece in pieces)
        if not pieces:
            load.end()

    def _landed(self, flight: _Flight) -> _Flight:
        if flight.finish:
            with flight.load.failing(), flight.load.watch.on_storage(flight.load.path, self._thread):
                flight.finish()
        return flight

    def _serve_link(self) -> None:
        """Copy what has arrived, in order: while the link is busy with one piece it has the next one already."""
        copying: deque[tuple[_Flight, Finish | None]] = deque()
        more = True
        while more or copying:
            flight = None
            if more and len(copying) < ON_LINK:
                with contextlib.suppress(queue.Empty):
                    flight = self._arrived.get(block=not copying)
                    more = flight is not None
            if flight:
                copying.append((flight, self._start_copy(flight)))
            elif copying:
                self._finish_copy(*copying.popleft())

    def _start_copy(self, flight: _Flight) -> Finish | None:
        """None for a piece of a load that has failed."""
        load, run = flight.load, flight.piece.run_bytes
        if load.future.done():
            return None
        start_byte = flight.slot * self._piece_bytes + flight.piece.lead_bytes
        with load.failing(), load.watch.on_link():
            load.transfer.wait_for_compute()
            return self._link.start_up(
                rows_as_bytes(load.transfer.device)[run.start : run.stop],
                self.buffer.data[start_byte : start_byte + len(run)],
            )
        return None

    def _finish_copy(self, flight: _Flight, finish: Finish | None) -> None:
        """The piece's place in the ring is free again; the last piece of a load ends it."""
        load, device = flight.load, rows_as_bytes(flight.load.transfer.device)
        if finish:
            with load.failing():
                with load.watch.on_link():
                    finish()
                if flight.piece.run_bytes.stop == len(device):
                    self._ledger.read(load.transfer, self._thread, load.watch, device)
                    load.end()
        self._free.put(flight.slot)

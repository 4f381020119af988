"""The reader for links where the CPU copies: a loop in C copies each command's data when the command completes."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future

from dualblade.config.device import ReadAheadConfig
from dualblade.paths.base import FinishIo, Transfer, Worker
from dualblade.paths.pinned import PinnedBuffer
from dualblade.pipeline.link import Link
from dualblade.pipeline.read_queue import QueuedRead, ReadQueue
from dualblade.pipeline.threads import start_thread
from dualblade.record.ledger import Ledger

# Whole tensors queued on the ring at once: K and V of this layer, and of the next.
MAX_STARTED = 4


class MirrorReader:
    """Reads whole tensors in one thread, one queued behind the other."""

    def __init__(self, size: ReadAheadConfig, link: Link, ledger: Ledger, number: int) -> None:
        self.worker = Worker(number, PinnedBuffer(size.pieces * size.piece_bytes), max_depth=size.pieces)
        self._ledger = ledger
        self._reads = ReadQueue(ledger)
        self._started: deque[tuple[QueuedRead, FinishIo]] = deque()
        self._reader = start_thread(self._read)

    def load(self, transfer: Transfer, last_write: Future[None] | None) -> Future[None]:
        return self._reads.add(transfer, last_write)

    def close(self) -> None:
        self._reads.close()
        self._reader.join()

    def _read(self) -> None:
        while True:
            has_room = len(self._started) < MAX_STARTED
            read = self._reads.next(wait=not self._started) if has_room else None
            if read:
                self._start(read)
            elif self._started:
                self._finish(*self._started.popleft())
            else:
                return

    def _start(self, read: QueuedRead) -> None:
        start_ns = time.monotonic_ns()
        with read.failing():
            self._started.append((read, self._queue(read)))
            read.watch.on_storage(start_ns)

    def _queue(self, read: QueuedRead) -> FinishIo:
        transfer = read.transfer
        tensor, rows = transfer.tensor, transfer.rows
        if transfer.shared:
            return read.path.start_read(tensor, rows, Worker(self.worker.number, transfer.shared))
        return read.path.start_mirrored(tensor, rows, self.worker, transfer.device)

    def _finish(self, read: QueuedRead, finish: FinishIo) -> None:
        start_ns = time.monotonic_ns()
        with read.failing():
            read.watch.on_storage(start_ns, finish())
            read.watch.copied_with_storage()
            self._ledger.read(read.transfer, self.worker.number, read.watch, read.transfer.device_bytes)
            read.end()

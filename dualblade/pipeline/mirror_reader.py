"""The reader where the CPU does the copying: one thread, whose loop in C copies each command's data on as it comes."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future

from dualblade.config.device import ReadAheadConfig
from dualblade.paths.base import Finish, Queueing, Transfer
from dualblade.paths.pinned import PinnedBuffer
from dualblade.pipeline.link import Link
from dualblade.pipeline.read_queue import Load, ReadQueue, rows_as_bytes, start_thread
from dualblade.record.ledger import Ledger

# Whole tensors queued on the ring at once: K and V of this layer, and of the next.
MAX_STARTED = 4


class MirrorReader:
    """Reads whole tensors, one queued behind the other; the CPU copies each command's data on as it completes."""

    def __init__(self, size: ReadAheadConfig, link: Link, ledger: Ledger, thread: int) -> None:
        self.buffer = PinnedBuffer(size.pieces * size.piece_bytes)
        self._pieces = size.pieces
        self._ledger = ledger
        self._thread = thread
        self._loads = ReadQueue(ledger)
        self._started: deque[tuple[Load, Finish]] = deque()
        self._reader = start_thread(self._read)

    def depth(self, queue_depth: int) -> int:
        return min(queue_depth, self._pieces)

    def stride_bytes(self, depth: int) -> int:
        return self.buffer.size_bytes // depth

    def load(self, transfer: Transfer, last_write: Future[None] | None) -> Future[None]:
        load = Load(transfer, last_write)
        self._loads.put(load)
        return load.future

    def close(self) -> None:
        self._loads.close()
        self._reader.join()

    def _read(self) -> None:
        while True:
            has_room = len(self._started) < MAX_STARTED
            load = self._loads.next(wait=not self._started) if has_room else None
            if load:
                self._start(load)
            elif self._started:
                self._finish(*self._started.popleft())
            else:
                return

    def _start(self, load: Load) -> None:
        with load.failing(), load.watch.on_storage(load.path, self._thread):
            self._started.append((load, self._queue(load.transfer, load.path)))

    def _queue(self, transfer: Transfer, path: Queueing) -> Finish:
        tensor, rows = transfer.tensor, transfer.rows
        if transfer.shared:
            return path.start_read(tensor, rows, transfer.shared, self._thread)
        return path.start_mirrored(tensor, rows, self.buffer, transfer.device, self._thread)

    def _finish(self, load: Load, finish: Finish) -> None:
        with load.failing():
            with load.watch.on_storage(load.path, self._thread):
                finish()
            load.watch.copied_as_it_came()
            self._ledger.read(load.transfer, self._thread, load.watch, rows_as_bytes(load.transfer.device))
            load.end()

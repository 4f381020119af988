"""Reads that a reader has not yet begun, each after the last write to its tensor."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future

from dualblade.paths.base import QueueingPath, Transfer
from dualblade.record.ledger import Ledger, Stopwatch


class QueuedRead:
    """One transfer and its result; the reader and the link's thread both use it."""

    def __init__(self, transfer: Transfer, last_write: Future[None] | None) -> None:
        assert isinstance(transfer.path, QueueingPath)
        self.transfer = transfer
        self.path: QueueingPath = transfer.path
        self.future: Future[None] = Future()
        self.watch = Stopwatch()
        self._last_write = last_write
        self._ending = threading.Lock()

    def may_begin(self) -> bool:
        return self._last_write is None or self._last_write.done()

    def begin(self, ledger: Ledger) -> None:
        """Wait for the last write to the tensor, and raise its error."""
        if self._last_write is not None:
            self._last_write.result()
        ledger.reading(self.transfer)

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """End this read with any error of the block; the reader goes on with the next one."""
        try:
            yield
        except Exception as error:
            self.end(error)

    def end(self, error: Exception | None = None) -> None:
        """Set the result, unless it is set already."""
        with self._ending:
            if not self.future.done():
                self.future.set_exception(error) if error else self.future.set_result(None)


class ReadQueue:
    """Reads in the order in which they were requested."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._queue: queue.SimpleQueue[QueuedRead | None] = queue.SimpleQueue()
        self._head: QueuedRead | None = None
        self._closed = False

    def add(self, transfer: Transfer, last_write: Future[None] | None) -> Future[None]:
        read = QueuedRead(transfer, last_write)
        self._queue.put(read)
        return read.future

    def close(self) -> None:
        self._closed = True
        self._queue.put(None)

    def next(self, *, wait: bool) -> QueuedRead | None:
        """Return the next read that can begin.

        None: without `wait`, none can begin now; with `wait`, the queue is closed.
        """
        while not self._closed:
            try:
                self._head = self._head or self._queue.get(block=wait)
            except queue.Empty:
                return None
            if self._head and not wait and not self._head.may_begin():
                return None
            read, self._head = self._head, None
            if read:
                with read.failing():
                    read.begin(self._ledger)
                    return read
        self._drop()
        return None

    def _drop(self) -> None:
        if self._head:
            self._head.future.cancel()
        while not self._queue.empty():
            if read := self._queue.get():
                read.future.cancel()

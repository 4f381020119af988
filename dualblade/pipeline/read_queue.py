"""The loads that a reader has yet to begin, each behind the last write to its tensor."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import torch

from dualblade.paths.base import Queueing, Transfer
from dualblade.pipeline.copy_thread import set_up_copy_thread
from dualblade.record.ledger import Ledger, Stopwatch


class Load:
    """One transfer, and what becomes of it; the reader and the link's thread both have it in hand."""

    def __init__(self, transfer: Transfer, last_write: Future[None] | None) -> None:
        assert isinstance(transfer.path, Queueing)
        self.transfer = transfer
        self.path: Queueing = transfer.path
        self.future: Future[None] = Future()
        self.watch = Stopwatch()
        self._last_write = last_write
        self._ending = threading.Lock()

    def may_begin(self) -> bool:
        return self._last_write is None or self._last_write.done()

    def begin(self, ledger: Ledger) -> None:
        """Wait for the last write to the tensor; raises what went wrong with it."""
        if self._last_write is not None:
            self._last_write.result()
        ledger.reading(self.transfer)

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """An error in this block is the load's own; the reader goes on with the next one."""
        try:
            yield
        except Exception as error:
            self.end(error)

    def end(self, error: Exception | None = None) -> None:
        """Done, or failed: whatever came first."""
        with self._ending:
            if not self.future.done():
                self.future.set_exception(error) if error else self.future.set_result(None)


class ReadQueue:
    """Loads in the order in which they were asked for."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._queue: queue.SimpleQueue[Load | None] = queue.SimpleQueue()
        self._head: Load | None = None
        self._closed = False

    def put(self, load: Load) -> None:
        self._queue.put(load)

    def close(self) -> None:
        self._closed = True
        self._queue.put(None)

    def next(self, *, wait: bool) -> Load | None:
        """The next load that can begin. None: without `wait`, there is none now; with it, there will be no more."""
        while not self._closed:
            try:
                self._head = self._head or self._queue.get(block=wait)
            except queue.Empty:
                return None
            if self._head and not wait and not self._head.may_begin():
                return None
            load, self._head = self._head, None
            if load:
                with load.failing():
                    load.begin(self._ledger)
                    return load
        self._drop()
        return None

    def _drop(self) -> None:
        if self._head:
            self._head.future.cancel()
        while not self._queue.empty():
            if load := self._queue.get():
                load.future.cancel()


def rows_as_bytes(device: torch.Tensor) -> torch.Tensor:
    """The bytes of rows `[T, B, H, D]`, which are contiguous in a slot."""
    return device.reshape(-1).view(torch.uint8)


def start_thread(task: Callable[[], None]) -> threading.Thread:
    """A thread that is set up and runs `task`; it cannot keep the process from ending."""
    ready: Future[None] = Future()

    def run() -> None:
        try:
            set_up_copy_thread()
        except BaseException as error:
            ready.set_exception(error)
            return
        ready.set_result(None)
        task()

    thread = threading.Thread(target=run, name=f"ahead{task.__name__}", daemon=True)
    thread.start()
    ready.result()
    return thread

"""Overlap-full, beyond the paper: storage reads run ahead of the link, over tensors and layers.

One reader keeps the device's queue full, into a small ring of pinned pieces that every tensor shares; a second thread
copies what has arrived over the link, in order, and gives the piece back. So storage does not wait for the link unless
the ring is full, and a layer costs what the slower of the two needs. Where the CPU does the copying there is no second
thread: the reader's own loop in C copies each command's data on, from a ring small enough to stay in the CPU's cache.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from dualblade.config import ReadAheadConfig
from dualblade.extents import Piece
from dualblade.geometry import TensorId
from dualblade.ledger import Ledger, Stopwatch
from dualblade.link import Link, precise_sleep
from dualblade.nvme_direct import Finish
from dualblade.pinned import PinnedBuffer
from dualblade.transfer import Path, Transfer

# Whole tensors queued on the ring at once where the CPU copies: K and V of this layer, and of the next.
MOST_MIRRORED = 4


@runtime_checkable
class Queueing(Path, Protocol):
    """A path whose reads can be queued behind one another."""

    def pieces(self, tensor: TensorId, rows: range, piece_bytes: int) -> Iterator[Piece]: ...

    def start_piece(self, piece: Piece, buffer: PinnedBuffer, at_byte: int, thread: int) -> Finish: ...

    def start_mirrored(
        self, tensor: TensorId, rows: range, buffer: PinnedBuffer, device: torch.Tensor, thread: int
    ) -> Finish: ...


class ReadAhead(Protocol):
    """A reader with pinned memory of its own."""

    buffer: PinnedBuffer

    def depth(self, queue_depth: int) -> int:
        """Commands that its ring has to keep in flight, where `queue_depth` is what storage is to get."""
        ...

    def stride_bytes(self, depth: int) -> int:
        """At whose multiples the transfers of a ring of this depth begin in `buffer`."""
        ...

    def load(self, transfer: Transfer, last_write: Future[None] | None) -> Future[None]:
        """Queue storage -> pinned -> device, after the last write to the tensor."""
        ...

    def close(self) -> None:
        """Finish what is on its way and drop the rest."""
        ...


def open_read_ahead(size: ReadAheadConfig, link: Link, ledger: Ledger, thread: int) -> ReadAhead:
    """The reader that suits the link; its paths know it as `thread`."""
    reader = MirrorReader if link.by_cpu else PieceReader
    return reader(size, link, ledger, thread)


class _Load:
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


class _Inbox:
    """Loads in the order in which they were asked for."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._queue: queue.SimpleQueue[_Load | None] = queue.SimpleQueue()
        self._head: _Load | None = None
        self._closed = False

    def put(self, load: _Load) -> None:
        self._queue.put(load)

    def close(self) -> None:
        self._closed = True
        self._queue.put(None)

    def next(self, *, wait: bool) -> _Load | None:
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


class MirrorReader:
    """Reads whole tensors, one queued behind the other; the CPU copies each command's data on as it completes."""

    def __init__(self, size: ReadAheadConfig, link: Link, ledger: Ledger, thread: int) -> None:
        self.buffer = PinnedBuffer(size.pieces * size.piece_bytes)
        self._pieces = size.pieces
        self._ledger = ledger
        self._thread = thread
        self._inbox = _Inbox(ledger)
        self._started: deque[tuple[_Load, Finish]] = deque()
        self._reader = _thread(self._read)

    def depth(self, queue_depth: int) -> int:
        return min(queue_depth, self._pieces)

    def stride_bytes(self, depth: int) -> int:
        return self.buffer.size_bytes // depth

    def load(self, transfer: Transfer, last_write: Future[None] | None) -> Future[None]:
        load = _Load(transfer, last_write)
        self._inbox.put(load)
        return load.future

    def close(self) -> None:
        self._inbox.close()
        self._reader.join()

    def _read(self) -> None:
        while True:
            has_room = len(self._started) < MOST_MIRRORED
            load = self._inbox.next(wait=not self._started) if has_room else None
            if load:
                self._start(load)
            elif self._started:
                self._finish(*self._started.popleft())
            else:
                return

    def _start(self, load: _Load) -> None:
        tensor, rows, device = load.transfer.tensor, load.transfer.rows, load.transfer.device
        with load.failing(), load.watch.on_storage(load.path, self._thread):
            self._started.append((load, load.path.start_mirrored(tensor, rows, self.buffer, device, self._thread)))

    def _finish(self, load: _Load, finish: Finish) -> None:
        with load.failing():
            with load.watch.on_storage(load.path, self._thread):
                finish()
            load.watch.copied_as_it_came()
            self._ledger.read(load.transfer, self._thread, load.watch, _flat(load.transfer.device))
            load.end()


@dataclass(frozen=True)
class _Flight:
    """A piece on its way through `slot` of the ring; one that could not be started has no `finish`."""

    load: _Load
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
        self._inbox = _Inbox(ledger)
        self._to_start: deque[tuple[_Load, Piece]] = deque()
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._arrived: queue.SimpleQueue[_Flight | None] = queue.SimpleQueue()
        for slot in range(size.pieces):
            self._free.put(slot)
        link.pin([self.buffer])
        self._workers = [_thread(self._read), _thread(self._serve_link)]

    def depth(self, queue_depth: int) -> int:
        return queue_depth

    def stride_bytes(self, depth: int) -> int:
        return self._piece_bytes

    def load(self, transfer: Transfer, last_write: Future[None] | None) -> Future[None]:
        load = _Load(transfer, last_write)
        self._inbox.put(load)
        return load.future

    def close(self) -> None:
        self._inbox.close()
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
            load = self._inbox.next(wait=wait)
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

    def _split(self, load: _Load) -> None:
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
        """Copy what has arrived, in order, and give its place in the ring back."""
        while flight := self._arrived.get():
            if not flight.load.future.done():
                with flight.load.failing():
                    self._copy(flight)
            self._free.put(flight.slot)

    def _copy(self, flight: _Flight) -> None:
        load, run = flight.load, flight.piece.run_bytes
        start_byte = flight.slot * self._piece_bytes + flight.piece.lead_bytes
        device = _flat(load.transfer.device)
        with load.watch.on_link():
            load.transfer.wait_for_compute()
            self._link.to_device(device[run.start : run.stop], self.buffer.data[start_byte : start_byte + len(run)])
        if run.stop == len(device):
            self._ledger.read(load.transfer, self._thread, load.watch, device)
            load.end()


def _flat(device: torch.Tensor) -> torch.Tensor:
    """The bytes of rows `[T, B, H, D]`, which are contiguous in a slot."""
    return device.reshape(-1).view(torch.uint8)


def _thread(task: Callable[[], None]) -> threading.Thread:
    """A started thread that runs `task`; it cannot keep the process from ending."""

    def run() -> None:
        torch.set_num_threads(1)
        precise_sleep()
        task()

    thread = threading.Thread(target=run, name=f"ahead{task.__name__}", daemon=True)
    thread.start()
    return thread

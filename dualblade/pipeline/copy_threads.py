"""Copy threads: each owns a pinned buffer and moves tensors between storage and device, one after another.

K and V of a layer go to two of them (paper, "Adaptive pipeline"). Overlap-Intra lets their storage reads run at once;
where the link has one DMA engine the copies then follow one after the other. Overlap-Cross holds the second read back
until the first tensor goes over the link, so that storage and link work at the same time. A layer is loaded when the
one before it has arrived, as FlexLLMGen does it.

Whatever reads or writes a tensor first waits for the last write to it that was submitted before; so an append is on
storage before the next read of the same extent begins. Appended rows have threads of their own (FlexLLMGen's shared
queue gives them one as well): a small write waits in the device behind megabytes of reads, and whoever waits with it
reads nothing meanwhile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import torch

from dualblade.geometry import KVGeometry, TensorId
from dualblade.paths.base import Path, Transfer
from dualblade.paths.pinned import PinnedBuffer
from dualblade.pipeline.copy_thread import set_up_copy_thread
from dualblade.pipeline.futures import await_all
from dualblade.pipeline.link import Link
from dualblade.record.ledger import Ledger, Stopwatch


@dataclass(frozen=True)
class _Place:
    """Where a load stands in its layer: it may read from storage once `turn` is set, and sets `on_link` itself."""

    staggered: bool
    turn: threading.Event | None = None
    on_link: threading.Event = field(default_factory=threading.Event)

    def go_on_link(self) -> None:
        """It is the next load's turn, whose thread gets to read first even if the kernel wakes it on this one's core.

        Else, where the CPU does the copying, storage would idle until the copy is done: measured, for a millisecond.
        """
        self.on_link.set()
        if self.staggered:
            os.sched_yield()


class CopyThreads:
    """`n_threads` copy threads with a pinned buffer for any tensor of the geometry, and as many with one for a row."""

    def __init__(self, geometry: KVGeometry, link: Link, ledger: Ledger, n_threads: int, lba_bytes: int) -> None:
        self._geometry = geometry
        self._dtype = getattr(torch, geometry.dtype)
        self._link = link
        self._ledger = ledger
        self.n_threads = n_threads
        self._edge_bytes = 2 * lba_bytes  # a part-filled block before the rows and one after them
        row_bytes = geometry.largest_tensor_bytes // geometry.capacity_tokens
        sizes_bytes = [geometry.largest_tensor_bytes] * n_threads + [row_bytes] * n_threads
        self.buffers = [PinnedBuffer(size_bytes + self._edge_bytes) for size_bytes in sizes_bytes]
        link.pin(self.buffers)
        self._workers = [
            ThreadPoolExecutor(1, thread_name_prefix=f"copy-{index}", initializer=set_up_copy_thread)
            for index in range(len(self.buffers))
        ]
        self._last_write: dict[TensorId, Future[None]] = {}
        for started in [worker.submit(int) for worker in self._workers]:
            started.result()  # threads and their stacks are made now, not when memory has become scarce

    def store(self, transfer: Transfer) -> Future[None]:
        """Queue device -> pinned -> storage; the device memory must not change before it is done."""
        thread = self._thread(transfer.tensor)
        size_bytes = len(transfer.rows) * self._geometry.tensors[transfer.tensor].row_bytes
        if size_bytes + self._edge_bytes <= self.buffers[thread + self.n_threads].size_bytes:
            thread += self.n_threads
        return self._submit_write(transfer.tensor, thread, lambda: self._store(transfer, thread))

    def last_write(self, tensor: TensorId) -> Future[None] | None:
        """The last write to a tensor that was queued."""
        return self._last_write.get(tensor)

    def load(
        self, transfers: Sequence[Transfer], before: Sequence[Future[None]] = (), *, stagger: bool
    ) -> list[Future[None]]:
        """Queue storage -> pinned -> device for K and V of a layer; with `stagger`, by Overlap-Cross.

        They begin when the loads `before` them, which were queued earlier, have come to their end.
        """
        loads: list[Future[None]] = []
        last: _Place | None = None
        for transfer in transfers:
            place = _Place(stagger, last.on_link if last and stagger else None)
            loads.append(self._submit_load(transfer, place, before))
            last = place
        return loads

    def _submit_load(self, transfer: Transfer, place: _Place, before: Sequence[Future[None]]) -> Future[None]:
        """Whatever becomes of this load, also when it never begins, the one after it gets its turn."""
        thread = self._thread(transfer.tensor)

        def task() -> None:
            await_all(before)
            self._load(transfer, thread, place)

        load = self._submit(transfer.tensor, thread, task)
        load.add_done_callback(lambda _: place.on_link.set())
        return load

    def crop(self, path: Path, tensor: TensorId, n_rows: int) -> Future[None]:
        """Queue the forgetting of all rows from `n_rows` on, when everything queued before has come to its end.

        What went wrong with the rows that go is forgotten with them.
        """
        thread = self._thread(tensor)
        self._last_write.pop(tensor, None)

        def task() -> None:
            self._ledger.crop(tensor, n_rows)
            path.crop(tensor, n_rows, self.buffers[thread], thread)

        return self._submit_write(tensor, thread, task)

    def close(self) -> None:
        """Let every worker finish what it is doing, drop what it has not begun, and end it."""
        for worker in self._workers:
            worker.shutdown(wait=False, cancel_futures=True)  # all at once: what one drops, another may be waiting for
        for worker in self._workers:
            worker.shutdown(wait=True)
        self.buffers.clear()

    def _thread(self, tensor: TensorId) -> int:
        return tensor.order % self.n_threads

    def _submit(self, tensor: TensorId, thread: int, task: Callable[[], None]) -> Future[None]:
        """Queue a task that waits for the last write to its tensor; only for earlier ones, so that nothing can lock."""
        last_write = self._last_write.get(tensor)

        def run() -> None:
            if last_write is not None:
                last_write.result()
            task()

        return self._workers[thread].submit(run)

    def _submit_write(self, tensor: TensorId, thread: int, task: Callable[[], None]) -> Future[None]:
        self._last_write[tensor] = self._submit(tensor, thread, task)
        return self._last_write[tensor]

    def _store(self, transfer: Transfer, thread: int) -> None:
        data, watch = self._staged(transfer, thread), Stopwatch()
        with watch.on_link():
            transfer.wait_for_compute()
            self._link.start_down(self._as_rows(data, transfer.tensor), transfer.device)()
        self._ledger.writing(transfer, data)
        with watch.on_storage(transfer.path, thread):
            transfer.path.write(transfer.tensor, transfer.rows, self.buffers[thread], thread)
        self._ledger.written(transfer, thread, watch)

    def _load(self, transfer: Transfer, thread: int, place: _Place) -> None:
        if place.turn:
            place.turn.wait()
        self._ledger.reading(transfer)
        if transfer.shared:
            self._load_shared(transfer, transfer.shared, thread)
            return
        data, watch = self._staged(transfer, thread), Stopwatch()
        with watch.on_storage(transfer.path, thread):
            transfer.path.read(transfer.tensor, transfer.rows, self.buffers[thread], thread)
        place.go_on_link()
        with watch.on_link():
            transfer.wait_for_compute()
            self._link.start_up(transfer.device, self._as_rows(data, transfer.tensor))()
        self._ledger.read(transfer, thread, watch, data)

    def _load_shared(self, transfer: Transfer, buffer: PinnedBuffer, thread: int) -> None:
        watch = Stopwatch()
        with watch.on_storage(transfer.path, thread):
            transfer.path.read(transfer.tensor, transfer.rows, buffer, thread)
        watch.copied_as_it_came()
        self._ledger.read(transfer, thread, watch, transfer.device.reshape(-1).view(torch.uint8))

    def _staged(self, transfer: Transfer, thread: int) -> torch.Tensor:
        """The bytes of the thread's buffer that hold these rows."""
        tensor, rows = transfer.tensor, transfer.rows
        lead_bytes = transfer.path.lead_bytes(tensor, rows.start)
        return self.buffers[thread].data[lead_bytes : lead_bytes + len(rows) * self._geometry.tensors[tensor].row_bytes]

    def _as_rows(self, data: torch.Tensor, tensor: TensorId) -> torch.Tensor:
        return data.view(self._dtype).view(-1, *self._geometry.tensors[tensor].row_shape)

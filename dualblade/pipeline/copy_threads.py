"""Copy threads: each owns a pinned buffer and moves tensors between storage and device, one after another.

K and V of a layer go to two of them (paper, "Adaptive pipeline"). With Overlap-Intra their storage reads run together;
on a link with one DMA engine the copies then follow one after the other. With Overlap-Cross the second read waits until
the first tensor goes over the link, so that storage and link work at the same time. A layer is loaded when the one
before it has arrived, as in FlexLLMGen.

Each read or write of a tensor first waits for the last write to it that was submitted before. So an append is on
storage before the next read of its extent begins. Appended rows have threads of their own (FlexLLMGen's shared queue
has the same effect): a small write waits in the device behind megabytes of reads, and a thread that waits for it cannot
read at the same time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from dualblade.geometry import KVGeometry, TensorId
from dualblade.paths.base import KVPath, Transfer, Worker
from dualblade.paths.pinned import PinnedBuffer
from dualblade.pipeline.link import Link
from dualblade.pipeline.threads import await_all, set_up_copy_thread
from dualblade.record.ledger import Ledger, Stopwatch


class CopyThreads:
    """`n_threads` copy threads with a buffer for any tensor of the geometry, and as many with a buffer for a row."""

    def __init__(self, geometry: KVGeometry, link: Link, ledger: Ledger, n_threads: int, lba_bytes: int) -> None:
        self._link = link
        self._ledger = ledger
        self.n_threads = n_threads
        self._number_of = {tensor: tensor.order % n_threads for tensor in geometry.tensors}
        self._edge_bytes = 2 * lba_bytes  # a part-filled block before the rows and one after them
        row_bytes = geometry.largest_tensor_bytes // geometry.capacity_tokens
        sizes_bytes = [geometry.largest_tensor_bytes] * n_threads + [row_bytes] * n_threads
        buffers = [PinnedBuffer(size_bytes + self._edge_bytes) for size_bytes in sizes_bytes]
        link.pin(buffers)
        self.workers = [Worker(number, buffer) for number, buffer in enumerate(buffers)]
        self._executors = [
            ThreadPoolExecutor(1, thread_name_prefix=f"copy-{worker.number}", initializer=set_up_copy_thread)
            for worker in self.workers
        ]
        self._last_write: dict[TensorId, Future[None]] = {}
        for started in [executor.submit(int) for executor in self._executors]:
            started.result()  # make the threads and their stacks now, before memory becomes scarce

    def store(self, transfer: Transfer) -> Future[None]:
        """Queue device -> pinned -> storage; the device memory must not change before it is done."""
        tensor = transfer.tensor
        worker = self.workers[self._number_of[tensor] + self.n_threads]
        if transfer.device.nbytes + self._edge_bytes > worker.buffer.size_bytes:
            worker = self.workers[self._number_of[tensor]]
        write = self._last_write[tensor] = self._submit(tensor, worker, self._store, transfer, worker)
        return write

    def last_write(self, tensor: TensorId) -> Future[None] | None:
        """Return the last write to a tensor that was queued."""
        return self._last_write.get(tensor)

    def load(
        self, transfers: Sequence[Transfer], before: Sequence[Future[None]] = (), *, stagger: bool
    ) -> list[Future[None]]:
        """Queue storage -> pinned -> device for K and V of a layer; with `stagger`, by Overlap-Cross.

        They begin when the loads `before` them, which were queued earlier, have ended in any way.
        """
        loads: list[Future[None]] = []
        turn: threading.Event | None = None
        for transfer in transfers:
            worker = self.workers[self._number_of[transfer.tensor]]
            on_link = threading.Event() if stagger else None
            load = self._submit(transfer.tensor, worker, self._load, transfer, worker, before, turn, on_link)
            if on_link:
                _set_when_done(on_link, load)
            loads.append(load)
            turn = on_link
        return loads

    def crop(self, path: KVPath, tensor: TensorId, n_rows: int) -> Future[None]:
        """Queue the removal of all rows from `n_rows` on, after everything queued before.

        Errors of earlier writes to the tensor are forgotten.
        """
        self._last_write.pop(tensor, None)
        worker = self.workers[self._number_of[tensor]]
        write = self._last_write[tensor] = self._submit(tensor, worker, self._crop, path, tensor, n_rows, worker)
        return write

    def close(self) -> None:
        """End the threads: each finishes its current task and drops those that it has not begun."""
        for executor in self._executors:
            executor.shutdown(wait=False, cancel_futures=True)  # all first: one may wait for what another drops
        for executor in self._executors:
            executor.shutdown(wait=True)
        self.workers.clear()

    def _submit(self, tensor: TensorId, worker: Worker, task: Callable[..., None], *arguments: object) -> Future[None]:
        """Queue a task after the last write to its tensor; tasks wait only for earlier ones, so none can deadlock."""
        return self._executors[worker.number].submit(_run_after, self._last_write.get(tensor), task, arguments)

    def _store(self, transfer: Transfer, worker: Worker) -> None:
        watch, staged = Stopwatch(), _staged(transfer, worker)
        start_ns = time.monotonic_ns()
        self._link.start_down(_as_rows(staged, transfer.device), transfer.device, transfer.computed)()
        watch.on_link(start_ns)
        self._ledger.writing(transfer, staged)
        start_ns = time.monotonic_ns()
        watch.on_storage(start_ns, transfer.path.write(transfer.tensor, transfer.rows, worker))
        self._ledger.written(transfer, worker.number, watch)

    def _load(
        self,
        transfer: Transfer,
        worker: Worker,
        before: Sequence[Future[None]],
        turn: threading.Event | None,
        on_link: threading.Event | None,
    ) -> None:
        """Read when it is this load's `turn`; set `on_link`, the next load's turn, when the copy begins."""
        await_all(before)
        if turn:
            turn.wait()
        self._ledger.reading(transfer)
        if transfer.shared:
            self._load_shared(transfer, Worker(worker.number, transfer.shared))
            return
        watch, staged = Stopwatch(), _staged(transfer, worker)
        start_ns = time.monotonic_ns()
        watch.on_storage(start_ns, transfer.path.read(transfer.tensor, transfer.rows, worker))
        if on_link:
            on_link.set()
            # Let the next thread read first, even if the kernel wakes it on this core. Else, where the CPU copies,
            # storage idles until the copy is done: a millisecond, as measured.
            os.sched_yield()
        start_ns = time.monotonic_ns()
        self._link.start_up(transfer.device, _as_rows(staged, transfer.device), transfer.computed)()
        watch.on_link(start_ns)
        self._ledger.read(transfer, worker.number, watch, staged)

    def _load_shared(self, transfer: Transfer, worker: Worker) -> None:
        """Read into the buffer that the device computes in; nothing goes over a link."""
        watch, start_ns = Stopwatch(), time.monotonic_ns()
        watch.on_storage(start_ns, transfer.path.read(transfer.tensor, transfer.rows, worker))
        watch.copied_with_storage()
        self._ledger.read(transfer, worker.number, watch, transfer.device_bytes)

    def _crop(self, path: KVPath, tensor: TensorId, n_rows: int, worker: Worker) -> None:
        self._ledger.crop(tensor, n_rows)
        path.crop(tensor, n_rows, worker)


def _run_after(last_write: Future[None] | None, task: Callable[..., None], arguments: Sequence[object]) -> None:
    if last_write is not None:
        last_write.result()
    task(*arguments)


def _set_when_done(event: threading.Event, load: Future[None]) -> None:
    """Give the next load its turn, also if this one fails or is dropped."""
    load.add_done_callback(lambda _: event.set())


def _staged(transfer: Transfer, worker: Worker) -> torch.Tensor:
    """Return the bytes of the worker's buffer that hold the transfer's rows."""
    lead_bytes = transfer.path.lead_bytes(transfer.tensor, transfer.rows.start)
    return worker.buffer.data[lead_bytes : lead_bytes + transfer.device.nbytes]


def _as_rows(staged: torch.Tensor, device: torch.Tensor) -> torch.Tensor:
    return staged.view(device.dtype).view_as(device)

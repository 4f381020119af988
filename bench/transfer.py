"""The direct path by itself: whole tensors between two pinned buffers and a device, each begun before the last ends."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections import deque
from pathlib import Path
from types import TracebackType

from dualblade.config.run import RunConfig
from dualblade.paths.base import FinishIo, Worker
from dualblade.paths.direct import NvmeDirect
from dualblade.paths.pinned import PinnedBuffer, PinnedState, pinned_state
from dualblade.paths.ring import Op


class DirectTransfer:
    """All tensors of a configuration on the direct path; the file stays open, and fio gets at it between our turns."""

    def __init__(self, config: RunConfig, directory: Path) -> None:
        storage = dataclasses.replace(config.storage, directory=str(directory))
        # The prompt's rows only: what was never written is read as zeros, without the device, which would favour fio.
        self._geometry = dataclasses.replace(config.geometry(), capacity_tokens=config.workload.prompt_tokens)
        # Two buffers of one thread, whose number is 0: the next tensor is queued before the last one has ended.
        self._workers = [Worker(0, PinnedBuffer(self._geometry.largest_tensor_bytes)) for _ in range(2)]
        self._path = NvmeDirect(self._geometry, range(self._geometry.n_layers), storage, self._workers[:1])

    @property
    def size_bytes(self) -> int:
        return self._geometry.working_set_bytes

    @property
    def file(self) -> Path:
        """A name by which another process can open the file, which has none of its own (proc(5))."""
        return Path(f"/proc/{os.getpid()}/fd/{self._path.target.fd}")

    @property
    def buffers(self) -> PinnedState:
        return pinned_state([worker.buffer for worker in self._workers])

    def rate_gb_per_s(self, op: Op, passes: int) -> float:
        """Move every tensor `passes` times; the commands of the next one follow those of the last without a gap."""
        start = self._path.start_read if op == "read" else self._path.start_write
        rows = range(self._geometry.capacity_tokens)
        tensors = list(self._geometry.tensors) * passes
        begun: deque[FinishIo] = deque()
        start_s = time.perf_counter()
        for tensor, worker in zip(tensors, itertools.cycle(self._workers), strict=False):
            begun.append(start(tensor, rows, worker))
            if len(begun) == len(self._workers):
                begun.popleft()()
        while begun:
            begun.popleft()()
        return passes * self.size_bytes / (time.perf_counter() - start_s) / 1e9

    def __enter__(self) -> DirectTransfer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._path.close()

"""The direct path by itself: whole tensors between one pinned buffer and the device, as a copy thread moves them."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from types import TracebackType

from dualblade.config import RunConfig
from dualblade.nvme_direct import NvmeDirect
from dualblade.pinned import PinnedBuffer, PinnedState, pinned_state
from dualblade.uring import Op


class DirectTransfer:
    """All tensors of a configuration on the direct path; the file stays open, and fio gets at it between our turns."""

    def __init__(self, config: RunConfig, directory: Path) -> None:
        storage = dataclasses.replace(config.storage, directory=str(directory))
        # The prompt's rows only: what was never written is read as zeros, without the device, which would favour fio.
        self._geometry = dataclasses.replace(config.geometry(), capacity_tokens=config.workload.prompt_tokens)
        self._path = NvmeDirect(self._geometry, range(self._geometry.n_layers), storage, copy_threads=1)
        self._buffer = PinnedBuffer(self._geometry.largest_tensor_bytes)

    @property
    def size_bytes(self) -> int:
        return self._geometry.working_set_bytes

    @property
    def file(self) -> Path:
        """A name by which another process can open the file, which has none of its own (proc(5))."""
        return Path(f"/proc/{os.getpid()}/fd/{self._path.target.fd}")

    @property
    def buffer(self) -> PinnedState:
        return pinned_state([self._buffer])

    def rate_gb_per_s(self, op: Op, passes: int) -> float:
        """Move every tensor `passes` times, one call each."""
        move = self._path.read if op == "read" else self._path.write
        rows = range(self._geometry.capacity_tokens)
        start = time.perf_counter()
        for _ in range(passes):
            for tensor in self._geometry.tensors():
                move(tensor, rows, self._buffer, 0)
        return passes * self.size_bytes / (time.perf_counter() - start) / 1e9

    def __enter__(self) -> DirectTransfer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._path.close()

"""The link of a real GPU: DMA by CUDA's copy engines."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from dualblade.errors import ConfigurationError
from dualblade.paths.pinned import PinnedBuffer


class CudaLink:
    """DMA between buffers registered with CUDA and a GPU: one stream per copy thread.

    Events order both sides: a copy begins after the work that the caller's stream had when the transfer was queued, and
    it ends before the caller goes on. Waiting for them sleeps (cudaEventBlockingSync), so no copy thread spins.
    """

    kind = "cuda"
    by_cpu = False
    shares_memory = False

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._threads = threading.local()
        self._registered: list[PinnedBuffer] = []

    def start_up(self, device: torch.Tensor, pinned: torch.Tensor, computed: torch.cuda.Event) -> partial[None]:
        return self._start(device, pinned, computed)

    def start_down(self, pinned: torch.Tensor, device: torch.Tensor, computed: torch.cuda.Event) -> partial[None]:
        """Queue a copy to pinned memory; the GPU first gathers a source that is not contiguous."""
        return self._start(pinned, device, computed)

    def _start(self, target: torch.Tensor, source: torch.Tensor, computed: torch.cuda.Event) -> partial[None]:
        """Queue a copy; the GPU's engine for a direction takes the copies of all streams in the order of queueing."""
        stream, done = self._stream(), torch.cuda.Event(blocking=True)
        stream.wait_event(computed)
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
            done.record(stream)
        return partial(_end, done, source)

    def _stream(self) -> torch.cuda.Stream:
        """Return the calling thread's own stream."""
        if not hasattr(self._threads, "stream"):
            self._threads.stream = torch.cuda.Stream(self._device)
        stream: torch.cuda.Stream = self._threads.stream
        return stream

    def compute_so_far(self) -> torch.cuda.Event:
        reached = torch.cuda.Event()
        reached.record(torch.cuda.current_stream(self._device))
        return reached

    def pin(self, buffers: Sequence[PinnedBuffer]) -> None:
        """Register anonymous memory with CUDA (cudaHostRegister); io_uring may refuse memory of cudaHostAlloc.

        Raises:
            ConfigurationError: CUDA refuses.
        """
        torch.cuda.init()
        for buffer in buffers:
            code = int(torch.cuda.cudart().cudaHostRegister(buffer.address, buffer.size_bytes, 0))
            if code:
                raise ConfigurationError(
                    f"CUDA cannot register a pinned buffer of {buffer.size_bytes:,} bytes (cudaError {code}); raise "
                    "the memlock limit (ulimit -l), or use fewer copy threads or a smaller batch"
                )
            self._registered.append(buffer)

    def summary(self) -> dict[str, Any]:
        return {"kind": self.kind, "emulated": False, "gpu": torch.cuda.get_device_name(self._device)}

    def close(self) -> None:
        """Unregister the buffers; safe to call twice."""
        while self._registered:
            torch.cuda.cudart().cudaHostUnregister(self._registered.pop().address)


def _end(done: torch.cuda.Event, source: torch.Tensor) -> None:
    """Sleep until a copy has ended; its source stays alive until then."""
    done.synchronize()

"""The link of a real GPU: DMA by CUDA's copy engines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dualblade.errors import ConfigurationError
from dualblade.pinned import PinnedBuffer


class CudaLink:
    """DMA between buffers registered with CUDA and a GPU: one stream per copy thread, one direction at a time each.

    Events order both sides: a copy follows what the caller's stream had been given when it was queued, and it has ended
    before the caller goes on. They are of the kind that sleeps (cudaEventBlockingSync): no copy thread burns a core.
    """

    kind = "cuda"
    by_cpu = False

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._threads = threading.local()
        self._up, self._down = threading.Lock(), threading.Lock()  # a GPU has one copy engine for each direction
        self._registered: list[PinnedBuffer] = []

    def to_device(self, device: torch.Tensor, pinned: torch.Tensor) -> None:
        """Copy `[T, B, H, D]` rows up."""
        with self._up:
            self._copy(device, pinned)

    def to_host(self, pinned: torch.Tensor, device: torch.Tensor) -> None:
        """Copy `[T, B, H, D]` rows down; a source that is not contiguous is gathered on the GPU first."""
        with self._down:
            self._copy(pinned, device)

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        stream, done = self._stream(), torch.cuda.Event(blocking=True)
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
            done.record(stream)
        done.synchronize()

    def _stream(self) -> torch.cuda.Stream:
        """The calling thread's own."""
        if not hasattr(self._threads, "stream"):
            self._threads.stream = torch.cuda.Stream(self._device)
        stream: torch.cuda.Stream = self._threads.stream
        return stream

    def compute_so_far(self) -> Callable[[], None]:
        reached = torch.cuda.Event()
        reached.record(torch.cuda.current_stream(self._device))
        return lambda: self._stream().wait_event(reached)

    def pin(self, buffers: Sequence[PinnedBuffer]) -> None:
        """Register anonymous memory with CUDA (cudaHostRegister): what cudaHostAlloc gives, io_uring may refuse.

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

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "emulated": False, "gpu": torch.cuda.get_device_name(self._device)}

    def close(self) -> None:
        """Take the buffers back from CUDA; safe to call twice."""
        while self._registered:
            torch.cuda.cudart().cudaHostUnregister(self._registered.pop().address)

"""The link of a real GPU: DMA by CUDA's copy engines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dualblade.errors import ConfigurationError
from dualblade.paths.base import Finish
from dualblade.paths.pinned import PinnedBuffer


class CudaLink:
    """DMA between buffers registered with CUDA and a GPU: one stream per copy thread.

    Events order both sides: a copy follows what the caller's stream had been given when it was queued, and it has ended
    before the caller goes on. They are of the kind that sleeps (cudaEventBlockingSync): no copy thread burns a core.
    """

    kind = "cuda"
    by_cpu = False
    shares_memory = False

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._threads = threading.local()
        self._registered: list[PinnedBuffer] = []

    def start_up(self, device: torch.Tensor, pinned: torch.Tensor) -> Finish:
        return self._start(device, pinned)

    def start_down(self, pinned: torch.Tensor, device: torch.Tensor) -> Finish:
        """A source that is not contiguous is gathered on the GPU first."""
        return self._start(pinned, device)

    def _start(self, target: torch.Tensor, source: torch.Tensor) -> Finish:
        """The GPU's copy engine for the direction takes whole copies in the order in which all streams queued them."""
        stream, done = self._stream(), torch.cuda.Event(blocking=True)
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
            done.record(stream)
        return lambda: _end(done, source)

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


def _end(done: torch.cuda.Event, source: torch.Tensor) -> None:
    """Sleep until a copy has ended; what it reads from is kept until then."""
    done.synchronize()
    del source

"""The link between pinned host memory and the memory the model computes in.

One DMA engine moves one thing at a time: on a link that has one (`cuda`, `paced`) copies follow one after the other, in
the order in which they were queued. The plain copy of a host without a GPU is done by the CPU.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from dualblade.config.device import DeviceConfig, LinkPace
from dualblade.errors import ConfigurationError
from dualblade.paths.base import Finish
from dualblade.paths.pinned import PinnedBuffer
from dualblade.pipeline.cuda_link import CudaLink
from dualblade.units import GB

_PR_SET_TIMERSLACK = 29  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)


class Link(Protocol):
    """Copies between pinned memory and device memory, queued and then finished; data has arrived when that returns."""

    kind: str
    by_cpu: bool  # the CPU does the copying, without a time of the link's own
    shares_memory: bool  # there is nothing to copy: storage reads straight into the memory that the model computes in

    def start_up(self, device: torch.Tensor, pinned: torch.Tensor) -> Finish:
        """Queue the copy of `pinned` to `device`; done when the call that this returns comes back."""
        ...

    def start_down(self, pinned: torch.Tensor, device: torch.Tensor) -> Finish:
        """Queue the copy of `device` to `pinned`; the source may be any view of that shape."""
        ...

    def compute_so_far(self) -> Callable[[], None]:
        """What the device has been given to do until now; the result, called by a copy thread, has its copies follow.

        Data that the model has yet to produce must not be copied, nor memory be filled that it has yet to read.
        """
        ...

    def pin(self, buffers: Sequence[PinnedBuffer]) -> None:
        """Make the device able to reach these buffers by itself."""
        ...

    def describe(self) -> dict[str, Any]:
        """What result.json says about the link."""
        ...

    def close(self) -> None: ...


def open_link(config: DeviceConfig, device: torch.device) -> Link:
    """The link that the configuration names, to `device`.

    Raises:
        ConfigurationError: the link does not lead there, or there is no GPU.
    """
    if config.link == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError("device.link=cuda needs a GPU, and torch sees none; use device=host or a paced one")
    if (config.link == "cuda") != (device.type == "cuda"):
        raise ConfigurationError(
            f"device.link={config.link} does not lead to memory on {device}; "
            "use link=cuda where the model is on a GPU, and host or paced where it is not"
        )
    if config.link == "cuda":
        return CudaLink(device)
    if config.link == "shared":
        return SharedLink()
    return HostLink() if config.pace is None else PacedLink(config.pace)


def link_to(device: torch.device) -> Link:
    """The link that there is to `device`: none, where the model computes in the host's memory."""
    return CudaLink(device) if device.type == "cuda" else SharedLink()


class HostLink:
    """The plain copy: model memory is host memory."""

    kind = "host"
    by_cpu = True
    shares_memory = False

    def start_up(self, device: torch.Tensor, pinned: torch.Tensor) -> Finish:
        device.copy_(pinned)
        return _nothing

    def start_down(self, pinned: torch.Tensor, device: torch.Tensor) -> Finish:
        pinned.copy_(device)
        return _nothing

    def compute_so_far(self) -> Callable[[], None]:
        return _nothing  # a host's own computation is done when it calls

    def pin(self, buffers: Sequence[PinnedBuffer]) -> None:
        """Nothing to do: the buffers are this process's memory."""

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "emulated": False}

    def close(self) -> None:
        """Nothing to give back."""


class SharedLink(HostLink):
    """No link: CPU and GPU compute in the same memory, as on a Jetson, or the model runs on the CPU.

    Reads land where the model takes them from. What it computed is gathered into a pinned buffer before it is written.
    """

    kind = "shared"
    shares_memory = True


class PacedLink(HostLink):
    """The plain copy, and the time that a link of stated bandwidth and latency would need beyond it.

    One engine serves both directions and takes copies in the order in which they were queued; time without a copy is
    not made up. Where the CPU's own copying took longer than the stated link would have, that is told as `overrun_s`:
    a link faster than the memory cannot be emulated.
    """

    kind = "paced"
    by_cpu = False

    def __init__(self, pace: LinkPace) -> None:
        self._pace = pace
        self._bytes_per_s = pace.rate_gb_per_s * GB
        self._engine = threading.Lock()
        self._free_ns = 0
        self._copies = self._overruns = self._overrun_ns = 0

    def start_up(self, device: torch.Tensor, pinned: torch.Tensor) -> Finish:
        return self._start(device, pinned, pinned.nbytes)

    def start_down(self, pinned: torch.Tensor, device: torch.Tensor) -> Finish:
        return self._start(pinned, device, pinned.nbytes)

    def _start(self, target: torch.Tensor, source: torch.Tensor, size_bytes: int) -> Finish:
        with self._engine:
            due_ns = max(time.monotonic_ns(), self._free_ns) + self._duration_ns(size_bytes)
            self._free_ns = due_ns
        target.copy_(source)
        overrun_ns = time.monotonic_ns() - due_ns
        with self._engine:
            self._copies += 1
            self._overruns += overrun_ns > 0
            self._overrun_ns += max(0, overrun_ns)
        return lambda: _sleep_until(due_ns)

    def _duration_ns(self, size_bytes: int) -> int:
        return round(size_bytes / self._bytes_per_s * 1e9 + self._pace.latency_us * 1e3)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "emulated": True,
            "gb_per_s": self._pace.rate_gb_per_s,
            "storage_ratio": self._pace.storage_ratio,
            "storage_gb_per_s": self._pace.storage_gb_per_s,
            "latency_us": self._pace.latency_us,
            "source": self._pace.source,
            "copies": self._copies,
            "overruns": self._overruns,
            "overrun_s": self._overrun_ns / 1e9,
        }


def precise_sleep() -> None:
    """Let the calling thread's sleeps end on time: the kernel's default is to be up to 50 us late (prctl(2))."""
    _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def _sleep_until(due_ns: int) -> None:
    left_ns = due_ns - time.monotonic_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)


def _nothing() -> None:
    pass

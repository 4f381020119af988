"""The link between pinned host memory and the memory the model computes in.

A DMA engine makes one copy at a time: on a link that has one (`cuda`, `paced`), copies follow one after the other in
the order in which they were queued. On a host without a GPU the CPU copies.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from dualblade.config.device import DeviceConfig, LinkPace
from dualblade.errors import ConfigurationError
from dualblade.paths.pinned import PinnedBuffer
from dualblade.pipeline.cuda_link import CudaLink
from dualblade.units import GB

Finish = Callable[[], None]  # waits for a copy, and raises its error


class Link(Protocol):
    """Copies between pinned memory and device memory; the data has arrived when a copy's `Finish` returns."""

    kind: str
    by_cpu: bool  # the CPU copies, and the link takes no time of its own
    shares_memory: bool  # there is nothing to copy: storage reads straight into the memory that the model computes in

    def start_up(self, device: torch.Tensor, pinned: torch.Tensor, computed: Any) -> Finish:
        """Queue the copy of `pinned` to `device`, after the work that the mark `computed` stands for."""
        ...

    def start_down(self, pinned: torch.Tensor, device: torch.Tensor, computed: Any) -> Finish:
        """Queue the copy of `device`, which may be any view of that shape, to `pinned`, after that work."""
        ...

    def compute_so_far(self) -> Any:
        """Return a mark of all work that the device has been given until now.

        A copy must not read data that the model has not produced yet, nor overwrite memory that it has not read yet.
        """
        ...

    def pin(self, buffers: Sequence[PinnedBuffer]) -> None:
        """Register buffers so that the device itself can access them."""
        ...

    def summary(self) -> dict[str, Any]:
        """Return the link's part of result.json."""
        ...

    def close(self) -> None: ...


def open_link(config: DeviceConfig, device: torch.device) -> Link:
    """Open the link that the configuration names, to `device`.

    Raises:
        ConfigurationError: the link does not lead to that device, or there is no GPU.
    """
    if config.link == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError("device.link=cuda needs a GPU, and torch sees none; use device=host or a paced one")
    if (config.link == "cuda") != (device.type == "cuda"):
        raise ConfigurationError(
            f"device.link={config.link} does not lead to memory on {device}; "
            "use link=cuda where the model is on a GPU, and host or paced where it is not"
        )
    match config.link:
        case "cuda":
            return CudaLink(device)
        case "shared":
            return SharedLink()
        case "host" | "paced":
            return HostLink() if config.pace is None else PacedLink(config.pace)


def link_to(device: torch.device) -> Link:
    """Open the real link to `device`; a model in the host's memory needs no copy."""
    return CudaLink(device) if device.type == "cuda" else SharedLink()


class HostLink:
    """Copies by the CPU: model memory is host memory."""

    kind = "host"
    by_cpu = True
    shares_memory = False

    def start_up(self, device: torch.Tensor, pinned: torch.Tensor, computed: None) -> Finish:
        device.copy_(pinned)
        return _nothing

    def start_down(self, pinned: torch.Tensor, device: torch.Tensor, computed: None) -> Finish:
        pinned.copy_(device)
        return _nothing

    def compute_so_far(self) -> None:
        """Nothing to wait for: the CPU has finished its own work when it calls."""

    def pin(self, buffers: Sequence[PinnedBuffer]) -> None:
        """Nothing to do: the buffers are this process's memory."""

    def summary(self) -> dict[str, Any]:
        return {"kind": self.kind, "emulated": False}

    def close(self) -> None:
        """Nothing to release."""


class SharedLink(HostLink):
    """No link: CPU and GPU compute in the same memory, as on a Jetson, or the model runs on the CPU.

    Storage reads into the memory that the model computes in. New rows are gathered into a pinned buffer before a write.
    """

    kind = "shared"
    shares_memory = True


class PacedLink(HostLink):
    """Copies by the CPU that take at least the time of a link with a stated bandwidth and latency.

    One engine serves both directions and takes copies in the order in which they were queued; idle time earns no
    credit. `overrun_s` adds up the time by which the CPU's own copies were slower than the stated link: a link faster
    than the memory cannot be emulated.
    """

    kind = "paced"
    by_cpu = False

    def __init__(self, pace: LinkPace) -> None:
        self._pace = pace
        self._bytes_per_s = pace.rate_gb_per_s * GB
        self._engine = threading.Lock()
        self._free_ns = 0
        self._copies = self._overruns = self._overrun_ns = 0

    def start_up(self, device: torch.Tensor, pinned: torch.Tensor, computed: None) -> Finish:
        return self._start(device, pinned)

    def start_down(self, pinned: torch.Tensor, device: torch.Tensor, computed: None) -> Finish:
        return self._start(pinned, device)

    def _start(self, target: torch.Tensor, source: torch.Tensor) -> Finish:
        with self._engine:
            due_ns = max(time.monotonic_ns(), self._free_ns) + self._duration_ns(target.nbytes)
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

    def summary(self) -> dict[str, Any]:
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


def _sleep_until(due_ns: int) -> None:
    left_ns = due_ns - time.monotonic_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)


def _nothing() -> None:
    pass

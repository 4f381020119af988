"""The link between host and model memory, and the GPU that a replay stands for, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dualblade.errors import ConfigurationError
from dualblade.sections import require
from dualblade.units import MIB

MOST_PIECES = 4096  # of the ring that reads ahead


@dataclass(frozen=True)
class GpuConfig:
    """A GPU's data-sheet rates, from which the roofline takes the compute time of a replayed layer."""

    name: str
    peak_tflops: float
    memory_gb_per_s: float
    efficiency: float = 1.0

    def __post_init__(self) -> None:
        for name in ("peak_tflops", "memory_gb_per_s", "efficiency"):
            value = getattr(self, name)
            require(value > 0, f"device.gpu.{name}={value}", "more than 0")


@dataclass(frozen=True)
class LinkPace:
    """A link of stated speed, emulated on a host without it; `source` says whose numbers these are.

    Sizes shrink with `scale` and stated rates do not: what decides is the ratio of the link to the SSD. So the speed
    is given as `gb_per_s`, or else as `storage_ratio`, a multiple of the storage's own read rate. The harness measures
    that rate, unless it is given as `storage_gb_per_s`.
    """

    gb_per_s: float | None
    source: str
    latency_us: float = 0.0
    storage_ratio: float | None = None
    storage_gb_per_s: float | None = None

    def __post_init__(self) -> None:
        if (self.gb_per_s is None) == (self.storage_ratio is None):
            raise ConfigurationError(
                f"device.pace.gb_per_s={self.gb_per_s} and device.pace.storage_ratio={self.storage_ratio} do not go "
                "together; give the link's rate or its ratio to the storage's, and null for the other"
            )
        for name in ("gb_per_s", "storage_ratio", "storage_gb_per_s"):
            value = getattr(self, name)
            require(value is None or value > 0, f"device.pace.{name}={value}", "more than 0")
        require(self.latency_us >= 0, f"device.pace.latency_us={self.latency_us}", "0 or more microseconds")

    @property
    def rate_gb_per_s(self) -> float:
        """GB/s of the link.

        Raises:
            ConfigurationError: it is a multiple of a rate that nobody has measured yet.
        """
        if self.gb_per_s is not None:
            return self.gb_per_s
        assert self.storage_ratio is not None
        if self.storage_gb_per_s is None:
            raise ConfigurationError(
                f"device.pace.storage_ratio={self.storage_ratio:g} is a multiple of the storage's read rate, which is "
                "not known here; start the run by `python -m experiments.run`, which measures it, or set "
                "device.pace.storage_gb_per_s"
            )
        return self.storage_ratio * self.storage_gb_per_s


@dataclass(frozen=True)
class ReadAheadConfig:
    """The pinned memory through which pipeline "overlap_full" reads ahead of the link: `pieces` of `piece_bytes`."""

    pieces: int = 8
    piece_bytes: int = 2 * MIB

    def __post_init__(self) -> None:
        depth = f"2 to {MOST_PIECES}"
        require(2 <= self.pieces <= MOST_PIECES, f"device.read_ahead.pieces={self.pieces}", depth)
        require(self.piece_bytes > 0, f"device.read_ahead.piece_bytes={self.piece_bytes}", "more than 0 bytes")


@dataclass(frozen=True)
class DeviceConfig:
    """The link between host and model memory, and the GPU whose compute a replay stands for (None: no compute).

    `pace` is the stated speed of link "paced"; `read_ahead` serves pipeline "overlap_full" alone.
    """

    name: str
    link: Literal["host", "cuda", "paced", "shared"] = "host"
    pace: LinkPace | None = None
    gpu: GpuConfig | None = None
    copy_threads: int = 2
    read_ahead: ReadAheadConfig = field(default_factory=ReadAheadConfig)

    def __post_init__(self) -> None:
        require(1 <= self.copy_threads <= 64, f"device.copy_threads={self.copy_threads}", "1 to 64")
        if (self.link == "paced") != (self.pace is not None):
            raise ConfigurationError(
                f"device.link={self.link} does not go with device.pace={self.pace}; "
                "link=paced needs the pace of the link, and no other link has one"
            )

"""Configuration of the link between host and model memory, and of the GPU whose compute a replay emulates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dualblade.config.sections import require_within
from dualblade.config.storage import LATENCIES_US, RATES_GB_PER_S
from dualblade.errors import ConfigurationError
from dualblade.units import GIB, MIB

PIECES = 2, 4096  # of the ring that reads ahead
PIECE_BYTES = 512, GIB
COPY_THREADS = 1, 64
GPU_RATES = 0.001, 1_000_000  # of a data sheet, and shares of it
STORAGE_RATIOS = 0.001, 1000


@dataclass(frozen=True)
class GpuConfig:
    """A GPU's data-sheet rates; the roofline computes the time of a replayed layer from them."""

    name: str
    peak_tflops: float
    memory_gb_per_s: float
    efficiency: float = 1.0

    def __post_init__(self) -> None:
        for name in ("peak_tflops", "memory_gb_per_s", "efficiency"):
            require_within(getattr(self, name), GPU_RATES, f"device.gpu.{name}")


@dataclass(frozen=True)
class LinkPace:
    """A link of stated speed, emulated on a host without it; `source` says where the numbers come from.

    Sizes shrink with `scale`, stated rates do not. The ratio of link to SSD decides the result, so the speed is given
    either as `gb_per_s` or as `storage_ratio`, a multiple of the storage's own read rate. The harness measures that
    rate, unless it is given as `storage_gb_per_s`.
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
        bounds = {"gb_per_s": RATES_GB_PER_S, "storage_ratio": STORAGE_RATIOS, "storage_gb_per_s": RATES_GB_PER_S}
        for name in bounds:
            if getattr(self, name) is not None:
                require_within(getattr(self, name), bounds[name], f"device.pace.{name}")
        require_within(self.latency_us, LATENCIES_US, "device.pace.latency_us")

    @property
    def rate_gb_per_s(self) -> float:
        """GB/s of the link.

        Raises:
            ConfigurationError: it is a multiple of a rate that is not measured yet.
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
        require_within(self.pieces, PIECES, "device.read_ahead.pieces")
        require_within(self.piece_bytes, PIECE_BYTES, "device.read_ahead.piece_bytes")


@dataclass(frozen=True)
class DeviceConfig:
    """The link between host and model memory, and the GPU whose compute a replay emulates (None: no compute).

    `pace` is the stated speed of link "paced"; `read_ahead` serves pipeline "overlap_full" alone.
    """

    name: str
    link: Literal["host", "cuda", "paced", "shared"] = "host"
    pace: LinkPace | None = None
    gpu: GpuConfig | None = None
    copy_threads: int = 2
    read_ahead: ReadAheadConfig = field(default_factory=ReadAheadConfig)

    def __post_init__(self) -> None:
        require_within(self.copy_threads, COPY_THREADS, "device.copy_threads")
        if (self.link == "paced") != (self.pace is not None):
            raise ConfigurationError(
                f"device.link={self.link} does not go with device.pace={self.pace}; "
                "link=paced needs the pace of the link, and no other link has one"
            )

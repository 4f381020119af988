"""One run as data: what `python -m dualblade RUN_DIR` reads from RUN_DIR/config.yaml, checked field by field.

The harness composes the same fields with Hydra (conf/).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from dualblade.errors import ConfigurationError
from dualblade.geometry import KVGeometry
from dualblade.sections import read_section, require

KIB, MIB, GIB, GB = 2**10, 2**20, 2**30, 10**9

Pipeline = Literal["none", "intra", "cross", "adaptive", "overlap_full"]
Source = Literal["replay", "model"]

MOST_QUEUE_DEPTH = 4096  # of one ring, well below the kernel's IORING_MAX_ENTRIES


@dataclass(frozen=True)
class VariantConfig:
    """A point in the space that the paper's four variants span (design: no variant is a special case).

    `knob` is Algorithm 1's X: "all" (every layer through the page cache), "budget" (B_pc less `slack`), bytes, or a
    share of the layers ("25%"), whatever the budget. `overflow` says what happens to the layers beyond X: left to the
    kernel, evicted eagerly, or NVMe-direct. `pipeline` says how a layer's storage reads and link copies overlap (see
    pipeline.py); `adaptive` measures again when a group's throughput differs from what decided by more than
    `reprobe_factor` in `reprobe_iterations` iterations in a row (None, as in the paper: never).
    """

    name: str
    knob: str | int
    overflow: Literal["leave", "evict", "direct"]
    slack: float = 0.05
    pipeline: Pipeline = "none"
    reprobe_factor: float | None = None
    reprobe_iterations: int = 3

    def __post_init__(self) -> None:
        require(0 <= self.slack < 1, f"variant.slack={self.slack}", "a share of the budget, 0 or more and below 1")
        factor, iterations = self.reprobe_factor, self.reprobe_iterations
        require(factor is None or factor > 1, f"variant.reprobe_factor={factor}", "a factor above 1, or null")
        require(iterations >= 1, f"variant.reprobe_iterations={iterations}", "1 or more")


@dataclass(frozen=True)
class ModelConfig:
    """A model's KV and compute sizes. `weights` names a local folder or GGUF file, needed by model runs only."""

    name: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    mlp_matrices: int
    dtype: str = "float16"
    weights: str | None = None

    @property
    def layer_parameters(self) -> int:
        """Weights of one decoder layer: Q and O, K and V, and the MLP's two or three matrices."""
        attention = 2 * self.hidden_size * self.head_dim * (self.n_heads + self.n_kv_heads)
        return attention + self.mlp_matrices * self.hidden_size * self.intermediate_size


@dataclass(frozen=True)
class RecordsConfig:
    """A folder of benchmark records to ask about (see `records.py`), and how prompts are made of them.

    Each prompt begins with up to `examples` solved ones, as many as fit into the workload's prompt_tokens; `seed`
    decides which records are asked about and which are examples.
    """

    task: Literal["entity_matching", "error_detection"]
    path: str
    examples: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.examples >= 0, f"workload.records.examples={self.examples}", "0 or more")


@dataclass(frozen=True)
class WorkloadConfig:
    """Sequences, prompt and generated tokens at the paper's own size (scale 1).

    `source` is "replay" (the KV traffic without a model) or "model" (real weights, which read the lines of the file
    `prompts`, or questions about `records`).
    """

    name: str
    batch_size: int
    prompt_tokens: int
    generated_tokens: int
    source: Source = "replay"
    prompts: str | None = None
    records: RecordsConfig | None = None


@dataclass(frozen=True)
class PaceConfig:
    """A stated device in place of a faster real one: it serves the direct path's commands one by one, no faster."""

    name: str
    read_gb_per_s: float
    write_gb_per_s: float
    latency_us: float = 0.0

    def __post_init__(self) -> None:
        for name in ("read_gb_per_s", "write_gb_per_s"):
            value = getattr(self, name)
            require(value > 0, f"storage.pace.{name}={value}", "more than 0")
        require(self.latency_us >= 0, f"storage.pace.latency_us={self.latency_us}", "0 or more")


@dataclass(frozen=True)
class StorageConfig:
    """Where the tensors go. Group 1 always lives in files under `directory`; `backend` serves Group 2.

    A device for raw writes has nothing on it and is named by `serial`: for backend "block" beside its path in
    `block_device`; for "nvme" it is found by it, and by `namespace` where it has several. LBAs count from the start of
    what is named: the `partition`, or the whole namespace, of which the last LBA has to be given. `records` is the
    folder that remembers which blocks a run wrote, should it be killed (None: `directory`). `pace` holds the direct
    path to the rates of a stated device.
    """

    name: str
    directory: str
    backend: Literal["file", "block", "nvme"] = "file"
    block_device: str | None = None
    serial: str | None = None
    namespace: int | None = None
    partition: int | None = None
    lba_bytes: int = 4096
    first_lba: int = 0
    last_lba: int | None = None
    records: str | None = None
    iopoll: bool = False
    chunk_bytes: int = MIB
    queue_depth: int = 16
    timeout_s: float = 60.0
    pace: PaceConfig | None = None
    page_cache_io: Literal["mmap", "rw"] = "mmap"
    checksum: bool = False
    read_ahead_kb: int | None = 128
    dirty_pages: Literal["budget", "machine"] = "budget"

    def __post_init__(self) -> None:
        lba, chunk = self.lba_bytes, self.chunk_bytes
        require(lba >= 512 and lba & (lba - 1) == 0, f"storage.lba_bytes={lba}", "a power of two, at least 512")
        require(chunk > 0 and chunk % lba == 0, f"storage.chunk_bytes={chunk}", f"a multiple of lba_bytes={lba}")
        depth = f"1 to {MOST_QUEUE_DEPTH}"
        require(1 <= self.queue_depth <= MOST_QUEUE_DEPTH, f"storage.queue_depth={self.queue_depth}", depth)
        require(self.first_lba >= 0, f"storage.first_lba={self.first_lba}", "0 or more")
        last = self.first_lba if self.last_lba is None else self.last_lba
        require(last >= self.first_lba, f"storage.last_lba={last}", f"first_lba={self.first_lba} or more")
        require(
            not self.iopoll or self.backend == "nvme", "storage.iopoll=true", "it with storage.backend=nvme, or false"
        )
        require(self.timeout_s > 0, f"storage.timeout_s={self.timeout_s}", "more than 0 seconds")


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
        depth = f"2 to {MOST_QUEUE_DEPTH}"
        require(2 <= self.pieces <= MOST_QUEUE_DEPTH, f"device.read_ahead.pieces={self.pieces}", depth)
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


@dataclass(frozen=True)
class RunConfig:
    """Everything the engine needs to know about one run."""

    variant: VariantConfig
    model: ModelConfig
    workload: WorkloadConfig
    storage: StorageConfig
    device: DeviceConfig
    scale: int = 1
    decode_iterations: int | None = None

    def __post_init__(self) -> None:
        if self.scale < 1 or self.workload.batch_size % self.scale:
            allowed = [str(s) for s in range(1, self.workload.batch_size + 1) if self.workload.batch_size % s == 0]
            raise ConfigurationError(
                f"scale={self.scale} does not divide the batch of {self.workload.batch_size} sequences "
                f"of workload {self.workload.name}; use one of {', '.join(allowed)}"
            )
        piece, lba = self.device.read_ahead.piece_bytes, self.storage.lba_bytes
        require(piece % lba == 0, f"device.read_ahead.piece_bytes={piece}", f"a multiple of storage.lba_bytes={lba}")
        most = self.workload.generated_tokens - 1
        if self.decode_iterations is not None and not 1 <= self.decode_iterations <= most:
            raise ConfigurationError(
                f"decode_iterations={self.decode_iterations} is outside 1..{most}, the iterations of workload "
                f"{self.workload.name} that read KV; leave it out to run them all"
            )

    @property
    def batch_size(self) -> int:
        return self.workload.batch_size // self.scale

    @property
    def iterations(self) -> int:
        """Decode iterations to run: one less than the generated tokens, since prefill yields the first."""
        return self.decode_iterations or self.workload.generated_tokens - 1

    @property
    def capacity_tokens(self) -> int:
        """Rows a tensor must hold: the prompt, and one row for each decode iteration that is run."""
        return self.workload.prompt_tokens + self.iterations

    def geometry(self) -> KVGeometry:
        """The KV cache of this run at its scale."""
        return KVGeometry.uniform(
            self.model.n_layers,
            self.model.n_kv_heads,
            self.model.head_dim,
            batch_size=self.batch_size,
            capacity_tokens=self.capacity_tokens,
            dtype=self.model.dtype,
        )

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> RunConfig:
        """Build from plain data; sections of the harness that the engine does not know are left alone.

        Raises:
            ConfigurationError: a field is missing, unknown inside a section, or of the wrong type.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        return read_section(cls, {key: value for key, value in data.items() if key in known}, "")

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        """Read a run's config.yaml."""
        try:
            data = yaml.safe_load(path.read_text())
        except FileNotFoundError:
            raise ConfigurationError(f"{path} does not exist; a run directory holds a config.yaml") from None
        except yaml.YAMLError as error:
            raise ConfigurationError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
        if not isinstance(data, Mapping):
            raise ConfigurationError(f"{path} holds {type(data).__name__}, expected a mapping of sections")
        return cls.from_mapping(data)


__all__ = [
    "GB",
    "GIB",
    "KIB",
    "MIB",
    "DeviceConfig",
    "GpuConfig",
    "LinkPace",
    "ModelConfig",
    "Pipeline",
    "ReadAheadConfig",
    "RecordsConfig",
    "RunConfig",
    "StorageConfig",
    "VariantConfig",
    "WorkloadConfig",
]

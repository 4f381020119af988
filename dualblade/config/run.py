"""One run as data: what `python -m dualblade RUN_DIR` reads from RUN_DIR/config.yaml, checked field by field.

The harness composes the same fields with Hydra (conf/).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from dualblade.config.device import DeviceConfig
from dualblade.config.sections import read_section, require, require_within
from dualblade.config.storage import StorageConfig
from dualblade.errors import ConfigurationError
from dualblade.geometry import KVGeometry

MODEL_SIZES = 1, 1 << 20
BATCH_SIZES = 1, 1 << 20

Pipeline = Literal["none", "intra", "cross", "adaptive", "overlap_full"]
WorkloadSource = Literal["replay", "model"]


@dataclass(frozen=True)
class VariantConfig:
    """A point in the space that the paper's four variants span; no variant is a special case in the code.

    `knob` is Algorithm 1's X: "all" (every layer through the page cache), "budget" (B_pc less `slack`), bytes, or a
    share of the layers ("25%"), whatever the budget. `overflow` says what happens to the layers beyond X: left to the
    kernel, evicted eagerly, or NVMe-direct. `pipeline` says how a layer's storage reads and link copies overlap (see
    pipeline/); `adaptive` measures again when a group's throughput differs from what decided by more than
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

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if isinstance(size := getattr(self, field.name), int):
                require_within(size, MODEL_SIZES, f"model.{field.name}")

    @property
    def layer_parameters(self) -> int:
        """Weights of one decoder layer: Q and O, K and V, and the MLP's two or three matrices."""
        attention = 2 * self.hidden_size * self.head_dim * (self.n_heads + self.n_kv_heads)
        return attention + self.mlp_matrices * self.hidden_size * self.intermediate_size


@dataclass(frozen=True)
class RecordsConfig:
    """A folder of benchmark records to ask about (see `model/questions.py`), and how prompts are made of them.

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
    source: WorkloadSource = "replay"
    prompts: str | None = None
    records: RecordsConfig | None = None

    def __post_init__(self) -> None:
        require_within(self.batch_size, BATCH_SIZES, "workload.batch_size")
        require(self.prompt_tokens >= 1, f"workload.prompt_tokens={self.prompt_tokens}", "1 or more")
        generated = "2 or more, since prefill yields the first and decoding is what is measured"
        require(self.generated_tokens >= 2, f"workload.generated_tokens={self.generated_tokens}", generated)


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
        """Build from plain data; sections that only the harness knows are ignored.

        Raises:
            ConfigurationError: a field is missing, unknown inside a section, or of the wrong type.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        return read_section(cls, {key: value for key, value in data.items() if key in known}, "")

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        """Read a run's config.yaml.

        Raises:
            ConfigurationError: it cannot be read, or a run cannot use what it says.
        """
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigurationError(
                f"{path} cannot be read: {error.strerror}; give a run directory that holds a config.yaml"
            ) from None
        except UnicodeDecodeError:
            raise ConfigurationError(f"{path} is not text in UTF-8; write the configuration as YAML") from None
        except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that no calendar has
            raise ConfigurationError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
        if not isinstance(data, Mapping):
            raise ConfigurationError(f"{path} holds {type(data).__name__}, expected a mapping of sections")
        return cls.from_mapping(data)

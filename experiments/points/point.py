"""One point of a sweep: what is measured, under which limit, and the identity by which its result is found again."""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualblade.config.run import RunConfig
from dualblade.config.sections import fits
from dualblade.config.storage import StorageConfig
from dualblade.errors import ConfigurationError
from dualblade.units import GB
from experiments.guest.settings import GuestSettings
from experiments.machine import environment
from experiments.tracing import TraceSettings


@dataclass(frozen=True)
class Settings:
    """How the harness goes about a point; no part of the point's identity."""

    experiment: str
    results_dir: Path
    deadline_s: float
    rerun_stale: bool
    trace: TraceSettings

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Settings:
        return cls(
            experiment=str(config["experiment"]),
            results_dir=Path(config["results_dir"]),
            deadline_s=_number(config, "deadline_s"),
            rerun_stale=bool(config["rerun_stale"]),
            trace=TraceSettings.from_config(config["trace"]),
        )


@dataclass(frozen=True)
class Point:
    """A checked configuration. `config` is the whole of it, as Hydra composed it, for the record."""

    run: RunConfig
    memory_gb: float | None
    budget_ratio: float | None
    paper_overhead_gb: float
    repetition: int
    testbed: str
    guest: GuestSettings | None
    trace: str
    config: Mapping[str, Any]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Point:
        """Check what Hydra composed.

        Raises:
            ConfigurationError: a value that no run can use.
        """
        return cls(
            run=RunConfig.from_mapping(config),
            memory_gb=_optional_number(config, "memory_gb"),
            budget_ratio=_optional_number(config, "budget_ratio"),
            paper_overhead_gb=_number(config, "paper_overhead_gb"),
            repetition=repetition(config["repetition"]),
            testbed=config["testbed"]["name"],
            guest=GuestSettings.from_config(config),
            trace=config["trace"]["name"],
            config=config,
        )

    @property
    def budget_bytes(self) -> int | None:
        """Memory that the limit leaves beside the process (design: the memory axis); None without a limit."""
        if self.budget_ratio is not None:
            return round(self.budget_ratio * self.working_set_bytes)
        if self.memory_gb is None:
            return None
        return round((self.memory_gb - self.paper_overhead_gb) * GB / self.run.scale)

    @functools.cached_property
    def working_set_bytes(self) -> int:
        return self.run.geometry().working_set_bytes

    @property
    def file_bytes(self) -> int:
        """The most that a run may put on the file system: all KV, but for what goes to a block device of its own."""
        if self.run.storage.backend == "file" or self.run.variant.overflow != "direct" or self.budget_bytes is None:
            return self.working_set_bytes
        return min(self.working_set_bytes, max(0, self.budget_bytes))

    @functools.cached_property
    def config_hash(self) -> str:
        """Hash of all that is measured: equal for equal measurements, however their configuration was spelled."""
        run = dataclasses.replace(self.run, decode_iterations=self.run.iterations)
        identity = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)} | {
            "run": dataclasses.asdict(run),
            "memory_gb": None if self.budget_ratio is not None else self.memory_gb,
        }
        identity["run"]["model"]["weights"] = _file_name(run.model.weights)
        identity["run"]["storage"]["records"] = None
        if run.workload.records:
            identity["run"]["workload"]["records"]["path"] = _file_name(run.workload.records.path)
        del identity["config"], identity["guest"]
        identity |= {"guest": self.guest.identity()} if self.guest else {}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    @functools.cached_property
    def name(self) -> str:
        """Folder name, one for all repetitions: readable, and unique by a hash of the rest."""
        digest = dataclasses.replace(self, repetition=0).config_hash[:8]
        run = self.run
        return f"{run.variant.name}-{run.model.name}-{run.workload.name}-{self._memory}-scale{run.scale}-{digest}"

    @property
    def storage(self) -> StorageConfig:
        return self.run.storage

    @property
    def group(self) -> str:
        """What the status counts together."""
        return self.run.variant.name

    def code(self) -> str:
        """The program that measures: a result is current as long as it is the same."""
        return environment.code_hash()

    @property
    def label(self) -> str:
        """What tells the point apart for the eye: variant, memory, repetition."""
        where = f"{self.guest.ssd_name} {self.guest.lru} LRU " if self.guest else ""
        return f"{self.run.variant.name} {self._memory} {where}rep {self.repetition}"

    def engine_config(self, scratch: Path, storage_gb_per_s: float | None = None) -> dict[str, Any]:
        """The configuration as the engine of one run gets it: its storage is the run's own folder.

        `storage_gb_per_s` is the read rate of the storage, for a link that is stated as a multiple of it.
        """
        config = copy.deepcopy(dict(self.config))
        config["storage"]["directory"] = str(scratch)
        config["storage"]["records"] = self._records
        if storage_gb_per_s is not None:
            config["device"]["pace"]["storage_gb_per_s"] = storage_gb_per_s
        return config

    def raw_writes(self, scratch: Path) -> dict[str, Any]:
        """The storage section as plain data, which finds the blocks again that an engine of this point writes raw."""
        storage = dataclasses.replace(self.run.storage, directory=str(scratch), records=self._records, pace=None)
        return dataclasses.asdict(storage)

    @property
    def _records(self) -> str | None:
        """Absolute, since the journal may be read from another folder."""
        records = self.run.storage.records
        return None if records is None else str(Path(records).absolute())

    @property
    def _memory(self) -> str:
        if self.budget_ratio is not None:
            return f"ratio{self.budget_ratio:g}"
        return "unlimited" if self.memory_gb is None else f"{self.memory_gb:g}gb"


def _file_name(path: str | None) -> str | None:
    return None if path is None else Path(path).name


def repetition(value: Any) -> int:
    """Which turn of a point this is, from 0.

    Raises:
        ConfigurationError: no such count.
    """
    if not fits(int, value) or value < 0:
        raise ConfigurationError(f"repetition={value!r} is not a count; give 0, 1, 2, ...")
    return int(value)


def _number(config: Mapping[str, Any], key: str) -> float:
    value = config[key]
    if not fits(float, value):
        raise ConfigurationError(f"{key}={value!r} is not a number; give one, as in {key}=4")
    return float(value)


def _optional_number(config: Mapping[str, Any], key: str) -> float | None:
    return None if config[key] is None else _number(config, key)

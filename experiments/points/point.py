"""One point of a sweep: what to measure, its memory limit, and the identity that finds its result again."""

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
    """Settings of the harness, which are not part of a point's identity."""

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
    """A checked configuration of one run. `config` is all of it as Hydra composed it, to be stored with the result."""

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
        """Check a composed configuration.

        Raises:
            ConfigurationError: a value cannot be used.
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
        """Memory that the limit leaves for page cache beside the process; None without a limit."""
        if self.budget_ratio is not None:
            return round(self.budget_ratio * self.working_set_bytes)
        if self.memory_gb is None:
            return None
        return round((self.memory_gb - self.paper_overhead_gb) * GB / self.run.scale)

    @functools.cached_property
    def working_set_bytes(self) -> int:
        """Bytes of all KV at the end of the run."""
        return self.run.geometry().working_set_bytes

    @property
    def file_bytes(self) -> int:
        """Most bytes that a run writes to the file system: all KV, except for layers that go to a block device."""
        if self.run.storage.backend == "file" or self.run.variant.overflow != "direct" or self.budget_bytes is None:
            return self.working_set_bytes
        return min(self.working_set_bytes, max(0, self.budget_bytes))

    @functools.cached_property
    def config_hash(self) -> str:
        """Hash of all that affects the measurement: equal for equal measurements, however they are configured."""
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
        """Name of the folder for all repetitions: readable, and unique by a hash."""
        digest = dataclasses.replace(self, repetition=0).config_hash[:8]
        run = self.run
        return f"{run.variant.name}-{run.model.name}-{run.workload.name}-{self._memory}-scale{run.scale}-{digest}"

    @property
    def storage(self) -> StorageConfig:
        return self.run.storage

    @property
    def group(self) -> str:
        """Name under which the status counts this point."""
        return self.run.variant.name

    def code(self) -> str:
        """Hash of the program that measures; a result with another hash is stale."""
        return environment.code_hash()

    @property
    def label(self) -> str:
        """Short name for a person: variant, memory, repetition."""
        where = f"{self.guest.ssd_name} {self.guest.lru} LRU " if self.guest else ""
        return f"{self.run.variant.name} {self._memory} {where}rep {self.repetition}"

    def engine_config(self, scratch: Path, storage_gb_per_s: float | None = None) -> dict[str, Any]:
        """The configuration for the engine, which stores KV in the run's own folder `scratch`.

        `storage_gb_per_s` is the storage's read rate, for a link whose rate is a multiple of it.
        """
        config = copy.deepcopy(dict(self.config))
        config["storage"]["directory"] = str(scratch)
        config["storage"]["records"] = self._records
        if storage_gb_per_s is not None:
            config["device"]["pace"]["storage_gb_per_s"] = storage_gb_per_s
        return config

    def raw_writes(self, scratch: Path) -> dict[str, Any]:
        """The storage section as plain data; it is enough to find the blocks again that the engine writes raw."""
        storage = dataclasses.replace(self.run.storage, directory=str(scratch), records=self._records, pace=None)
        return dataclasses.asdict(storage)

    @property
    def _records(self) -> str | None:
        """An absolute path, since the journal may be read from another folder."""
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
    """Check the number of a repetition, from 0.

    Raises:
        ConfigurationError: it is no such number.
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

"""The results folder: every path in it, and what state a point is in. Complete results only: renamed into place."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from experiments.machine.environment import fingerprint
from experiments.machine.journal import Journal
from experiments.points.kinds import AnyPoint

CONFIG = "config.yaml"
ENVIRONMENT = "environment.json"
RESULT = "result.json"
KV_IO = "kv_io.parquet"
ENGINE_LOG = "engine.log"


class State(Enum):
    """Of a point, as the results folder shows it."""

    TO_DO = "to do"
    DONE = "done"
    STALE = "stale"
    FAILED = "failed"


@dataclass(frozen=True)
class Record:
    """One result on disk."""

    folder: Path
    environment: Mapping[str, Any]
    result: Mapping[str, Any]

    @classmethod
    def load(cls, folder: Path) -> Record | None:
        """None for a folder that holds no readable result: it will be measured again."""
        try:
            environment, result = _read(folder / ENVIRONMENT), _read(folder / RESULT)
        except (OSError, ValueError, RecursionError):
            return None
        return cls(folder, environment, result) if _is_sound(environment) else None

    @property
    def failed(self) -> bool:
        return self.result.get("status") != "done"

    @property
    def seconds(self) -> float:
        return float(self.environment.get("harness_s", {}).get("total", 0.0))

    def state(self, current: Mapping[str, Any]) -> State:
        """`current` is the fingerprint that a new run would have."""
        if self.failed:
            return State.FAILED
        return State.DONE if fingerprint(self.environment) == current else State.STALE


class Results:
    """A folder `<experiment>/<point>/rep-N`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, experiment: str, point: AnyPoint) -> Path:
        return self.root / experiment / point.name / f"rep-{point.repetition}"

    def find(self, point: AnyPoint) -> Record | None:
        """The point's result, whichever experiment measured it: sweeps share points. One that is done comes first."""
        folders = sorted(self.root.glob(f"*/{point.name}/rep-{point.repetition}"))
        records = [record for folder in folders if (record := Record.load(folder))]
        records = [record for record in records if record.environment.get("config_hash") == point.config_hash]
        return min(records, key=lambda record: record.failed, default=None)

    def records(self) -> Iterator[Record]:
        """Everything that is there."""
        for folder in sorted(self.root.glob("[!.]*/*/rep-*")):
            if record := Record.load(folder):
                yield record

    @contextlib.contextmanager
    def workspace(self, experiment: str, point: AnyPoint, journal: Journal) -> Iterator[Workspace]:
        """A hidden folder beside the result's place; what is not published by the end is gone."""
        target = self.folder(experiment, point)
        hidden = target.with_name(f".{target.name}.{os.getpid()}")
        with journal.undo("remove_tree", str(hidden.absolute())):
            workspace = Workspace(hidden / "new", hidden / "old", target)
            workspace.folder.mkdir(parents=True)
            yield workspace


@dataclass(frozen=True)
class Workspace:
    """A result in the making: written in `folder`, then moved to `target`."""

    folder: Path
    replaced: Path
    target: Path

    def write_config(self, config: Mapping[str, Any]) -> None:
        (self.folder / CONFIG).write_text(yaml.safe_dump(dict(config), sort_keys=False))

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        (self.folder / name).write_text(json.dumps(content, indent=1) + "\n")

    def read_result(self) -> dict[str, Any] | None:
        """What the engine wrote, if it came that far."""
        try:
            return _read(self.folder / RESULT)
        except (FileNotFoundError, ValueError):
            return None

    def publish(self) -> None:
        """Put the result in its place, for an older one if there is one; killed in between, neither is there."""
        with contextlib.suppress(FileNotFoundError):
            self.target.rename(self.replaced)
        self.folder.rename(self.target)


def _read(path: Path) -> dict[str, Any]:
    """Raises:
    OSError, ValueError, RecursionError: it is missing, damaged, or nested without end.
    """
    content = json.loads(path.read_text())
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no mapping")
    return content


def _is_sound(environment: Mapping[str, Any]) -> bool:
    """Whether what is looked into is what it should be."""
    sections = {name: environment.get(name, {}) for name in ("storage", "guest", "harness_s")}
    if not all(isinstance(section, dict) for section in sections.values()):
        return False
    total_s, package = sections["harness_s"].get("total", 0.0), sections["guest"].get("kernel_package", "")
    return isinstance(total_s, int | float) and isinstance(package, str)

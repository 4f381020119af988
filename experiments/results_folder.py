"""The results folder: finds the result of a point, and puts a new one in its place when it is complete."""

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

from dualblade.linux.files import write_json
from dualblade.run.run_files import RUNS, RunFile, run_folder
from experiments.machine.environment import fingerprint
from experiments.machine.journal import Journal
from experiments.points.any_point import AnyPoint


class State(Enum):
    """State of a point, as the results folder shows it."""

    TO_DO = "to do"
    DONE = "done"
    STALE = "stale"
    FAILED = "failed"


@dataclass(frozen=True)
class StoredResult:
    """One result on disk."""

    folder: Path
    environment: Mapping[str, Any]
    result: Mapping[str, Any]

    @classmethod
    def load(cls, folder: Path) -> StoredResult | None:
        """Read a run's folder; None if a file is missing or damaged, so that the point is measured again."""
        try:
            environment, result = _read(folder / RunFile.ENVIRONMENT), _read(folder / RunFile.RESULT)
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
        """The state, given the fingerprint that a new run would have now."""
        if self.failed:
            return State.FAILED
        return State.DONE if fingerprint(self.environment) == current else State.STALE


class ResultsFolder:
    """Results in folders `<experiment>/<point>/rep-N`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, experiment: str, point: AnyPoint) -> Path:
        return run_folder(self.root / experiment / point.name, point.repetition)

    def find(self, point: AnyPoint) -> StoredResult | None:
        """Find the point's result in any experiment, since sweeps share points.

        A complete result comes before a failed one.
        """
        folders = sorted(run_folder(folder, point.repetition) for folder in self.root.glob(f"*/{point.name}"))
        records = [record for folder in folders if (record := StoredResult.load(folder))]
        records = [record for record in records if record.environment.get("config_hash") == point.config_hash]
        return min(records, key=lambda record: record.failed, default=None)

    def records(self) -> Iterator[StoredResult]:
        """Read every result in the folder."""
        for folder in sorted(self.root.glob(RUNS)):
            if record := StoredResult.load(folder):
                yield record

    @contextlib.contextmanager
    def workspace(self, experiment: str, point: AnyPoint, journal: Journal) -> Iterator[Workspace]:
        """Make a hidden folder beside the result's place. It is removed at the end, with all that was not published."""
        target = self.folder(experiment, point)
        hidden = target.with_name(f".{target.name}.{os.getpid()}")
        with journal.undo("remove_tree", str(hidden.absolute())):
            workspace = Workspace(hidden / "new", hidden / "old", target)
            workspace.folder.mkdir(parents=True)
            yield workspace


@dataclass(frozen=True)
class Workspace:
    """An unfinished result: written in `folder`, then moved to `target`; an older one moves to `replaced`."""

    folder: Path
    replaced: Path
    target: Path

    def write_config(self, config: Mapping[str, Any]) -> None:
        (self.folder / RunFile.CONFIG).write_text(yaml.safe_dump(dict(config), sort_keys=False))

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        write_json(content, self.folder / name)

    def read_result(self) -> dict[str, Any] | None:
        """Read what the engine wrote; None if it ended before."""
        try:
            return _read(self.folder / RunFile.RESULT)
        except (FileNotFoundError, ValueError):
            return None

    def publish(self) -> None:
        """Move the result to its place, and an older one away. A kill between the two moves loses both."""
        with contextlib.suppress(FileNotFoundError):
            self.target.rename(self.replaced)
        self.folder.rename(self.target)


def _read(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds a mapping.

    Raises:
        OSError, ValueError, RecursionError: it is missing, damaged, or nested too deeply.
    """
    content = json.loads(path.read_text())
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no mapping")
    return content


def _is_sound(environment: Mapping[str, Any]) -> bool:
    """Whether the sections that are read have the right types."""
    sections = {name: environment.get(name, {}) for name in ("storage", "guest", "harness_s")}
    if not all(isinstance(section, dict) for section in sections.values()):
        return False
    total_s, package = sections["harness_s"].get("total", 0.0), sections["guest"].get("kernel_package", "")
    return isinstance(total_s, int | float) and isinstance(package, str)

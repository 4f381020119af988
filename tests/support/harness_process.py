"""Runs the harness as a process of its own, and looks for what it must not leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from experiments.errors import MachineError
from experiments.machine.cgroup_tree import find_parent
from experiments.machine.journal import Journal
from experiments.results_folder import ResultsFolder, StoredResult
from tests.support.checkout import CHECKOUT

DRIVER = Path(__file__).with_name("harness_driver.py")
FAST = ["scale=32", "decode_iterations=2", "model.n_layers=2"]


def needs_root_and_cgroup() -> pytest.MarkDecorator:
    try:
        find_parent()
    except MachineError as error:
        return pytest.mark.skip(reason=str(error))
    return pytest.mark.skipif(os.geteuid() != 0, reason="readahead and the cache drop need root")


@dataclass(frozen=True)
class Harness:
    """A working folder on a disk with its own results, KV and journal; readahead is not touched unless asked for."""

    folder: Path
    pids: list[int] = field(default_factory=list)

    def start(self, *overrides: str, real: bool = False, read_ahead_kb: str = "null") -> subprocess.Popen[str]:
        program = ["-m", "experiments.run"] if real else [str(DRIVER)]
        options = [override for override in overrides if override.startswith("-")]
        defaults = [*FAST, f"storage.read_ahead_kb={read_ahead_kb}"]
        process = subprocess.Popen(
            [sys.executable, *program, *options, *defaults, *(item for item in overrides if item not in options)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), "DUALBLADE_STATE_DIR": str(self.state)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pids.append(process.pid)
        return process

    def run(self, *overrides: str, real: bool = False) -> subprocess.CompletedProcess[str]:
        process = self.start(*overrides, real=real)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def results(self) -> ResultsFolder:
        return ResultsFolder(self.folder / "results")

    def records(self) -> list[StoredResult]:
        return list(self.results.records())

    def only_record(self) -> StoredResult:
        (record,) = self.records()
        return record

    def clear(self) -> None:
        """What a killed harness left, if no other came after it."""
        if self.state.exists():
            Journal(self.state / "journal.json").clear()

    def left_behind(self) -> list[str]:
        """Cgroups, scratch folders and half results that are there now."""
        _, parent = find_parent()
        groups = [path for pid in self.pids for path in parent.glob(f"dualblade-{pid}-*")]
        found = [*groups, *self.folder.glob("kv/*"), *self.results.root.glob("*/*/.*")]
        return [str(path) for path in found]

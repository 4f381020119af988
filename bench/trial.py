"""One run of a program that speaks the engine's protocol, ours or a peer's, each handled by the very same steps."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from dualblade.config.storage import StorageConfig
from dualblade.linux.files import last_line
from dualblade.run.run_files import RunFile
from experiments.errors import MachineError, RunError
from experiments.machine.caches import drop_caches
from experiments.machine.cgroup_tree import fresh_cgroup
from experiments.machine.dirty_pages import held_to_budget
from experiments.machine.journal import Journal, exclusive, state_dir
from experiments.machine.scratch import scratch_folder
from experiments.machine.storage_settings import readahead
from experiments.points.point import Point
from experiments.processes.engine import PROJECT, enter, running

ENGINE = "dualblade"
DEADLINE_S = 120.0


class Bench(NamedTuple):
    """What a bench holds while it measures: the list of what is to be undone, and a folder on the storage."""

    journal: Journal
    folder: Path


@contextlib.contextmanager
def session(storage: StorageConfig) -> Iterator[Bench]:
    """The machine for this bench alone, cleared of what an interrupted one left, with the libraries held in memory."""
    state = state_dir()
    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive(state / "lock"))
        journal = Journal(state / "journal.json")
        journal.clear()
        holder = stack.enter_context(running(["--hold", "replay"], None, state / "holder.log", DEADLINE_S))
        if holder.wait_for("ready") is None:
            raise MachineError("the engine does not start; run `make setup`")
        folder = stack.enter_context(scratch_folder(Path(storage.directory), 0, journal))
        stack.enter_context(readahead(folder, storage.read_ahead_kb, journal))
        yield Bench(journal, folder)


def run(point: Point, module: str, bench: Bench, python_path: Path = PROJECT) -> dict[str, Any]:
    """`python -m module RUN_DIR --handshake` in a fresh cgroup, on a fresh folder and dropped caches: its result.json.

    The limit is what the process holds when it says that it is ready, plus the point's budget.

    Raises:
        RunError: it ended without a result.
    """
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder(bench.folder, point.working_set_bytes, bench.journal))
        group = stack.enter_context(fresh_cgroup(bench.journal))
        run_dir, kv_dir = scratch / "run", scratch / "kv"
        run_dir.mkdir()
        kv_dir.mkdir()
        (run_dir / RunFile.CONFIG).write_text(yaml.safe_dump(point.engine_config(kv_dir)))
        program = stack.enter_context(_program(module, run_dir, group.procs, python_path))
        _wait_for(program, "ready", run_dir)
        drop_caches(scratch)
        if point.budget_bytes is not None:
            group.set_limit(group.process_bytes() + group.library_bytes() + point.budget_bytes)
            stack.enter_context(held_to_budget(point.budget_bytes, group.version, bench.journal))
        _say_go(program)
        _wait_for(program, "done", run_dir)
        return dict(json.loads((run_dir / RunFile.RESULT).read_text()))


@contextlib.contextmanager
def _program(module: str, run_dir: Path, procs: Path, python_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [*enter(procs), sys.executable, "-P", "-m", module, str(run_dir), "--handshake"]
    paths = os.pathsep.join(dict.fromkeys([str(PROJECT), str(python_path)]))
    with open(run_dir / "log", "wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,  # Ctrl-C is for the bench, which ends the program itself
        )
    watchdog = threading.Timer(DEADLINE_S, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def _wait_for(process: subprocess.Popen[str], name: str, run_dir: Path) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == name:
            return
    last = last_line(run_dir / "log") or "it says nothing"
    raise RunError(f"a run ended with code {process.wait()} before it was {name}, and the last it said was: {last}")


def _say_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write('{"event": "go"}\n')
    process.stdin.flush()

"""The machine of a bench, and single runs of the engine or of a peer, by the harness's own steps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualblade.config.storage import StorageConfig
from experiments.engine_run import EngineRun
from experiments.local import held_libraries
from experiments.machine.host import Host
from experiments.machine.journal import Journal, exclusive, state_dir
from experiments.machine.scratch import scratch_folder
from experiments.machine.storage_settings import readahead
from experiments.points.point import Point
from experiments.processes.engine import Launch
from experiments.results_folder import Workspace
from experiments.tracing import TraceSettings

DEADLINE_S = 120.0


@dataclass(frozen=True)
class Bench:
    """A machine held for one bench: its journal, a folder on the storage, and how the engine is started."""

    journal: Journal
    folder: Path
    launch: Launch

    def run(self, point: Point, launch: Launch | None = None) -> dict[str, Any]:
        """Measure the point by one run of the engine, or of the peer that `launch` starts; return its result.json.

        Raises:
            RunError: the run has no result.
        """
        with scratch_folder(self.folder, 0, self.journal) as folder:
            workspace, host = Workspace(folder, folder, folder), Host(launch or self.launch)
            run = EngineRun(point, DEADLINE_S, TraceSettings("none"), workspace, self.journal, lambda event: None, host)
            return run.execute()


@contextlib.contextmanager
def session(storage: StorageConfig) -> Iterator[Bench]:
    """Hold the machine for this bench alone, undo what an interrupted one left, and keep the libraries in memory."""
    state = state_dir()
    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive(state / "lock"))
        journal = Journal(state / "journal.json")
        journal.clear()
        launch = stack.enter_context(held_libraries(state, "replay", DEADLINE_S))
        folder = stack.enter_context(scratch_folder(Path(storage.directory), 0, journal))
        stack.enter_context(readahead(folder, storage.read_ahead_kb, journal))
        yield Bench(journal, folder, launch)

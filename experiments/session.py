"""What outlives a point: the machine held for one harness, the cleared journal, the engine's libraries kept mapped."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from experiments.engine import Report, running
from experiments.errors import MachineError
from experiments.journal import Journal, exclusive, state_dir
from experiments.measure import measure
from experiments.point import Settings
from experiments.points import AnyPoint
from experiments.results import Results


class Session:
    """Opens at the first point that has to be measured, so that a sweep that is done already costs nothing."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._journal: Journal | None = None

    def measure(self, point: AnyPoint, settings: Settings, results: Results, report: Report) -> Mapping[str, Any]:
        """One point; see `measure.measure`."""
        if self._journal is None:
            self._journal = self._open(settings.deadline_s)
        return measure(point, settings, results, self._journal, report)

    def _open(self, deadline_s: float) -> Journal:
        folder = state_dir()
        self._stack.enter_context(exclusive(folder / "lock"))
        journal = Journal(folder / "journal.json")
        journal.clear()
        self._hold_libraries(folder, deadline_s)
        return journal

    def _hold_libraries(self, folder: Path, deadline_s: float) -> None:
        """Map the engine's libraries outside any run's cgroup.

        A page is charged to the group that first touches it: without this, the first run would pay for libraries that
        the others find in memory. Pages that a process maps also survive a cache drop, so engines start faster.
        """
        log = folder / "holder.log"
        holder = self._stack.enter_context(running(["--hold"], None, log, deadline_s))
        if holder.wait_for("ready") is None:
            lines = log.read_text(errors="replace").strip().splitlines()
            raise MachineError(
                f"the engine does not start ({lines[-1] if lines else 'it says nothing'}); run `make setup`"
            )

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

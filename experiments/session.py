"""What outlives a point: the machine held for one harness, the cleared journal, the engine's libraries kept mapped."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from dualblade.config import Source
from experiments.engine import Report, running
from experiments.errors import MachineError
from experiments.journal import Journal, exclusive, state_dir
from experiments.measure import measure
from experiments.point import Point, Settings
from experiments.points import AnyPoint
from experiments.results import Results


class Session:
    """Opens at the first point that has to be measured, so that a sweep that is done already costs nothing."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._journal: Journal | None = None
        self._held: set[Source] = set()

    def measure(self, point: AnyPoint, settings: Settings, results: Results, report: Report) -> Mapping[str, Any]:
        """One point; see `measure.measure`."""
        if self._journal is None:
            self._journal = self._open()
        if isinstance(point, Point):
            self._hold_libraries(point.run.workload.source, settings.deadline_s)
        return measure(point, settings, results, self._journal, report)

    def _open(self) -> Journal:
        folder = state_dir()
        self._stack.enter_context(exclusive(folder / "lock"))
        journal = Journal(folder / "journal.json")
        journal.clear()
        return journal

    def _hold_libraries(self, source: Source, deadline_s: float) -> None:
        """Map the libraries that the engine needs for a source outside any run's cgroup, once a session.

        A page is charged to the group that first touches it: without this, the first run would pay for libraries that
        the others find in memory. Pages that a process maps also survive a cache drop, so engines start faster.
        """
        if source in self._held:
            return
        log = state_dir() / f"holder-{source}.log"
        holder = self._stack.enter_context(running(["--hold", source], None, log, deadline_s))
        if holder.wait_for("ready") is None:
            lines = log.read_text(errors="replace").strip().splitlines()
            raise MachineError(
                f"the engine does not start ({lines[-1] if lines else 'it says nothing'}); run `make setup`"
            )
        self._held.add(source)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

"""A session: the machine held for one harness, the cleared journal, and the testbeds in use."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from experiments.guest.testbed import GuestTestbed
from experiments.local import LocalTestbed
from experiments.machine.journal import Journal, exclusive, state_dir
from experiments.points.any_point import AnyPoint
from experiments.points.point import Settings
from experiments.processes.engine import Report
from experiments.results_folder import ResultsFolder


class Session:
    """Opens at the first point that has to be measured, so that a sweep that is done already costs nothing."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._journal: Journal | None = None
        self._testbeds: dict[str, LocalTestbed | GuestTestbed] = {}

    def measure(self, point: AnyPoint, settings: Settings, results: ResultsFolder, report: Report) -> Mapping[str, Any]:
        """One point, on its testbed; see `measure.measure`."""
        if point.testbed not in self._testbeds:
            self._testbeds[point.testbed] = self._open(point)
        return self._testbeds[point.testbed].measure(point, settings, results, report)

    def _open(self, point: AnyPoint) -> LocalTestbed | GuestTestbed:
        folder = state_dir()
        if self._journal is None:
            self._journal = self._hold_machine(folder)
        if point.guest is None:
            return LocalTestbed(self._journal, folder, self._stack)
        return self._stack.enter_context(GuestTestbed(self._journal))

    def _hold_machine(self, folder: Path) -> Journal:
        self._stack.enter_context(exclusive(folder / "lock"))
        journal = Journal(folder / "journal.json")
        journal.clear()
        return journal

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

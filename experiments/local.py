"""Testbed `local`: this machine itself. In a guest, the guest."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dualblade.config.run import WorkloadSource
from dualblade.linux.files import last_line
from experiments.errors import MachineError
from experiments.machine import environment
from experiments.machine.host import Host
from experiments.machine.journal import Journal
from experiments.machine.storage_rate import StorageRates
from experiments.measure import measure
from experiments.points.any_point import AnyPoint
from experiments.points.point import Point, Settings
from experiments.processes.engine import Launch, Report, execute, running
from experiments.results_folder import ResultsFolder

Engines = Callable[[Path, WorkloadSource, float], contextlib.AbstractContextManager[Launch]]


@contextlib.contextmanager
def held_libraries(folder: Path, source: WorkloadSource, deadline_s: float) -> Iterator[Launch]:
    """Engines started one by one while the libraries of such runs stay mapped outside any run's cgroup.

    A page is charged to the group that first touches it: without this, the first run would pay for libraries that
    the others find in memory. Pages that a process maps also survive a cache drop, so engines start faster.
    """
    log = folder / f"holder-{source}.log"
    with running(["--hold", source], None, log, deadline_s) as holder:
        if holder.wait_for("ready") is None:
            raise MachineError(f"the engine does not start ({last_line(log) or 'it says nothing'}); run `make setup`")
        yield execute


class LocalTestbed:
    """Measures points here; what engines need is made at the first one and kept."""

    def __init__(
        self,
        journal: Journal,
        folder: Path,
        stack: contextlib.ExitStack,
        engines: Engines = held_libraries,
        provenance: Mapping[str, Any] | None = None,
        code: Callable[[], dict[str, Any]] = environment.collect_code,
    ) -> None:
        self._journal = journal
        self._folder = folder
        self._stack = stack
        self._engines = engines
        self._provenance = provenance or {"emulated": False}
        self._code = code
        self._rates = StorageRates()
        self._launches: dict[WorkloadSource, Launch] = {}

    def measure(self, point: AnyPoint, settings: Settings, results: ResultsFolder, report: Report) -> Mapping[str, Any]:
        """One point; see `measure.measure`."""
        launch = self._launch(point.run.workload.source, settings) if isinstance(point, Point) else execute
        host = Host(launch, self._provenance, self._rates, self._code)
        return measure(point, settings, results, self._journal, report, host)

    def _launch(self, source: WorkloadSource, settings: Settings) -> Launch:
        if source not in self._launches:
            engines = self._engines(self._folder, source, settings.deadline_s)
            self._launches[source] = self._stack.enter_context(engines)
        return self._launches[source]

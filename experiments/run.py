"""Measure one point, or a sweep of points: `python -m experiments.run [-m] OVERRIDES`.

`variant=baseline memory_gb=4` is a point, `-m variant=baseline,dual_blade memory_gb=2,4,6` a sweep of six, and
`+experiment=hit_rate` a sweep that conf/experiment/ describes.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable

from omegaconf.errors import OmegaConfBaseException

from dualblade.errors import DualBladeError
from experiments.command_line import CommandLine, ask_hydra
from experiments.dry_run import print_writes
from experiments.fingerprint import current_fingerprint
from experiments.hydra_errors import COMPOSE_ERRORS, error_sentence
from experiments.machine.cgroup_tree import enter_scope
from experiments.points import all_experiments
from experiments.points.any_point import AnyPoint, from_config
from experiments.points.point import Settings
from experiments.points.sweep import Sweep, compose_points
from experiments.processes.signals import undo_on_request
from experiments.progress import Display, open_display
from experiments.results_folder import ResultsFolder, State
from experiments.session import Session

INTERRUPTED = 130
TRACEBACK_WANTED = "HYDRA_FULL_ERROR" in os.environ


def main() -> int:
    """0: every point has a result; 1: some failed, or the configuration cannot be used; 130: interrupted."""
    undo_on_request()
    try:
        return _exit_status(_run)
    except KeyboardInterrupt:
        print("experiments.run: interrupted; the same command goes on where it stopped", file=sys.stderr)
        return INTERRUPTED


def _run() -> int:
    command = CommandLine.parse(sys.argv[1:])
    if command.asks_hydra:
        ask_hydra()
        return 0
    if command.dry_run:
        return print_writes(compose_points(command.overrides))
    sweeps = all_experiments.parts(command.overrides)
    enter_scope(["-m", "experiments.run", *sys.argv[1:]])
    return max(_exit_status(functools.partial(_measure_sweep, *sweep, command.multirun)) for sweep in sweeps.items())


def _exit_status(work: Callable[[], int]) -> int:
    """The exit status that `work` returns; 1 after an error, which is printed in one sentence."""
    try:
        return work()
    except (*COMPOSE_ERRORS, DualBladeError, OSError) as error:
        if TRACEBACK_WANTED:
            raise
        print(f"experiments.run: {error_sentence(error)}", file=sys.stderr)
        return 1


def _measure_sweep(experiment: str, overrides: list[str], multirun: bool) -> int:
    """Measure every point that has no result yet; returns 1 if any point failed."""
    if experiment:
        print(f"{experiment}:", flush=True)
    sweep = Sweep(overrides, multirun=multirun or bool(experiment))
    with open_display(len(sweep.points)) as display, Session() as session:
        for overrides in sweep.points:
            _run_point(sweep, overrides, session, display)
    return 1 if display.counts[State.FAILED] else 0


def _run_point(sweep: Sweep, overrides: list[str], session: Session, display: Display) -> None:
    """Measure a point of a sweep. A point that fails is recorded, and the sweep goes on."""
    try:
        config = sweep.config(overrides)
        point, settings = from_config(config), Settings.from_config(config)
    except (DualBladeError, OmegaConfBaseException) as error:
        display.refused(" ".join(overrides), error_sentence(error))
        return
    skip_or_measure(point, settings, session, display)


def skip_or_measure(point: AnyPoint, settings: Settings, session: Session, display: Display) -> None:
    """Measure a point, unless there is a result that may be kept.

    Raises:
        MachineError: this machine can measure no point; the sweep ends.
    """
    results = ResultsFolder(settings.results_dir)
    stored = results.find(point)
    state = stored.state(current_fingerprint(point)) if stored else State.TO_DO
    if state is State.DONE or (state is State.STALE and not settings.rerun_stale):
        display.skipped(state)
        return
    start = time.monotonic()
    display.begin(point.label)
    result = session.measure(point, settings, results, display.event)
    display.measured(point.label, result, time.monotonic() - start)


if __name__ == "__main__":
    sys.exit(main())

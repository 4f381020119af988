"""Measure one point, or a Hydra multirun of them: `python -m experiments.run [-m] OVERRIDES`.

`variant=baseline memory_gb=4` is a point, `-m variant=baseline,dual_blade memory_gb=2,4,6` a sweep of six, and
`+experiment=hit_rate` one that conf/experiment/ describes.
"""

from __future__ import annotations

import os
import sys
import time

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from dualblade.errors import DualBladeError
from experiments.dry_run import FLAG, report
from experiments.errors import MachineError
from experiments.fingerprint import current_fingerprint
from experiments.hydra_errors import COMPLAINTS, sentence
from experiments.machine.cgroup_tree import enter_scope
from experiments.points import all_experiments
from experiments.points.kinds import AnyPoint, from_config
from experiments.points.point import Settings
from experiments.points.sweep import CONF, in_rounds, plain, register_resolvers
from experiments.processes.signals import undo_on_request
from experiments.progress import display
from experiments.results import Results, State
from experiments.session import Session

INTERRUPTED = 130


def main() -> int:
    """0: every point has a result; 1: some failed, or the configuration cannot be used; 130: interrupted."""
    undo_on_request()
    traceback_wanted = "HYDRA_FULL_ERROR" in os.environ
    try:
        if FLAG in sys.argv:
            return report(sys.argv[1:])
        if all_experiments.FLAG in sys.argv:
            return all_experiments.run_all(sys.argv[1:])
        return _run()
    except (*COMPLAINTS, DualBladeError, OSError) as error:
        if traceback_wanted:
            raise
        print(f"experiments.run: {sentence(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("experiments.run: interrupted; the same command goes on where it stopped", file=sys.stderr)
        return INTERRUPTED


def _run() -> int:
    """The sweep, or the point, of the command line by Hydra; 1 if any point failed."""
    enter_scope(["-m", "experiments.run", *sys.argv[1:]])
    sys.argv[1:] = in_rounds(sys.argv[1:])
    register_resolvers()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # exceptions come out of Hydra as they are, to be worded by `main`
    try:
        with Session() as session:
            run = hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
            run(lambda config: run_point(config, session))()
    finally:
        display().close()
    return 1 if display().counts[State.FAILED] else 0


def run_point(config: DictConfig, session: Session) -> None:
    """What Hydra runs for each point. A point that fails is recorded, and the sweep goes on."""
    try:
        values = plain(config)
        point, settings = from_config(values), Settings.from_config(values)
    except (DualBladeError, OmegaConfBaseException) as error:
        display().refused(" ".join(HydraConfig.get().overrides.task), sentence(error))
        return
    try:
        skip_or_measure(point, settings, session)
    except MachineError as error:
        raise SystemExit(f"experiments.run: {error}") from None


def skip_or_measure(point: AnyPoint, settings: Settings, session: Session) -> None:
    """Take the result that there is, or make one."""
    results = Results(settings.results_dir)
    record = results.find(point)
    state = record.state(current_fingerprint(point)) if record else State.TO_DO
    if state is State.DONE or (state is State.STALE and not settings.rerun_stale):
        display().skipped(state)
        return
    start = time.monotonic()
    display().begin(point.label)
    result = session.measure(point, settings, results, display().event)
    display().measured(point.label, result, time.monotonic() - start)


if __name__ == "__main__":
    sys.exit(main())

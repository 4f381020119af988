"""Measure one point and put its result in place."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from dualblade.errors import DualBladeError
from dualblade.run.result_schema import failed_result
from dualblade.run.run_files import RunFile
from experiments.engine_run import EngineRun
from experiments.errors import MachineError
from experiments.io_paths.io_run import IoRun
from experiments.machine.host import Host
from experiments.machine.journal import Journal
from experiments.points.any_point import AnyPoint
from experiments.points.io_point import IoPoint
from experiments.points.point import Settings
from experiments.processes.engine import Report
from experiments.results_folder import ResultsFolder


def measure(
    point: AnyPoint, settings: Settings, results: ResultsFolder, journal: Journal, report: Report, host: Host
) -> Mapping[str, Any]:
    """Run the engine, or fio, on one point and put its result, good or failed, in place; returns result.json.

    Raises:
        MachineError: no point can be measured here; nothing is recorded.
    """
    start = time.monotonic()
    with results.workspace(settings.experiment, point, journal) as workspace:
        run: EngineRun | IoRun
        if isinstance(point, IoPoint):
            run = IoRun(point, workspace, journal, report, host)
        else:
            run = EngineRun(point, settings.deadline_s, settings.trace, workspace, journal, report, host)
        try:
            result = run.execute()
        except MachineError:
            raise
        except DualBladeError as error:
            result = dict(failed_result(point.group, str(error)))
            workspace.write_json(RunFile.RESULT, result)
        run.record["harness_s"] = run.seconds | _overhead(result, time.monotonic() - start)
        workspace.write_json(RunFile.ENVIRONMENT, run.record)
        workspace.write_config(point.config)
        workspace.publish()
    return result


def _overhead(result: Mapping[str, Any], total_s: float) -> dict[str, float]:
    """Return the seconds of the run so far, and the part that is not the engine's prefill and decode."""
    measured_s = result.get("prefill_s", 0.0) + sum(result.get("decode_s", []))
    return {"total": total_s, "overhead": total_s - measured_s}

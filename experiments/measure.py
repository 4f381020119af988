"""Measures one point: storage, cgroup, engine, limit, result. Every step is undone whatever happens."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dualblade.errors import BudgetError, DualBladeError
from dualblade.linux.files import last_line
from dualblade.run.result_schema import failed_result
from dualblade.run.run_files import RunFile
from dualblade.units import GB
from experiments.errors import MachineError, RunError
from experiments.io_paths.io_run import IoRun
from experiments.machine import environment
from experiments.machine.caches import drop_caches
from experiments.machine.cgroup import RunCgroup
from experiments.machine.cgroup_tree import fresh_cgroup
from experiments.machine.dirty_pages import held_to_budget
from experiments.machine.host import Host
from experiments.machine.journal import Journal
from experiments.machine.scratch import scratch_folder
from experiments.machine.storage_settings import readahead
from experiments.points.any_point import AnyPoint
from experiments.points.io_point import IoPoint
from experiments.points.point import Point, Settings
from experiments.processes.engine import Engine, Report, running
from experiments.results_folder import ResultsFolder, Workspace
from experiments.tracing import NoTrace, RunTrace, TraceSettings, traced

# What I/O through the page cache needs to get on at all: pages under writeback and readahead, and the kernel's own
# growth while files are written. Below it the kernel kills the process sooner or later.
MIN_BUDGET_BYTES = 8 << 20
# What a process may grow by under its limit: a part of the budget, of which the kernel's account of the cached pages
# alone takes 2.5 %, and what no budget is too small for.
MAX_GROWTH, MAX_GROWTH_BYTES = 0.1, 2 << 20


def measure(
    point: AnyPoint, settings: Settings, results: ResultsFolder, journal: Journal, report: Report, host: Host
) -> Mapping[str, Any]:
    """Run the engine, or fio, on one point and put its result, good or failed, in place; returns result.json.

    Raises:
        MachineError: no point can be measured here; nothing is recorded.
    """
    start = time.monotonic()
    with results.workspace(settings.experiment, point, journal) as workspace:
        run: _Run | IoRun
        if isinstance(point, IoPoint):
            run = IoRun(point, workspace, journal, report, host)
        else:
            run = _Run(point, settings.deadline_s, settings.trace, workspace, journal, report, host)
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


@dataclass
class _Run:
    """One engine from start to end; `record` becomes environment.json, `seconds` its time by step."""

    point: Point
    deadline_s: float
    trace: TraceSettings
    workspace: Workspace
    journal: Journal
    report: Report
    host: Host
    record: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def execute(self) -> dict[str, Any]:
        """All steps, in the order in which the state of the machine needs them."""
        with contextlib.ExitStack() as stack:
            with self._step("prepare"):
                scratch, group = self._prepare(stack)
            with self._step("start_engine"):
                engine = self._start(stack, group)
            with self._step("attach_tracer"):
                tracer = self._trace(stack, scratch)
            # Only now, when engine and tracer are in memory: what they read to get there is dropped as well, mapped
            # libraries excepted, and does not count as page cache of the run.
            with self._step("drop_caches"):
                self.record["cache_drop"] = drop_caches(scratch)
            with self._step("limit"):
                self._limit(stack, group)
            with self._step("run"):
                result = self._go(engine, group)
            with self._step("detach_tracer"):
                tracer.stop()
            with self._step("decode_trace"):
                result["trace"] = self.record["trace"] = tracer.decode()
                self.workspace.write_json(RunFile.RESULT, result)
            with self._step("clean_up"):
                stack.close()
        return result

    def _prepare(self, stack: contextlib.ExitStack) -> tuple[Path, RunCgroup]:
        storage = self.point.run.storage
        directory = Path(storage.directory)
        rate = self.host.rates.wanted_by(self.point.run, self.journal)
        group = stack.enter_context(fresh_cgroup(self.journal))
        scratch = stack.enter_context(scratch_folder(directory, self.point.file_bytes, self.journal))
        before_kib = stack.enter_context(readahead(scratch, storage.read_ahead_kb, self.journal))
        self.record |= environment.collect(scratch) | self.host.code()
        self.record["storage"]["read_ahead_kb_before"] = before_kib
        self.record |= {
            "config_hash": self.point.config_hash,
            "testbed": self.point.testbed,
            **self.host.provenance,
            "cgroup": {"version": group.version, "path": str(group.path)},
        }
        if rate is not None:
            self.record["storage_rate"] = asdict(rate)
        self.workspace.write_config(self.point.engine_config(scratch, rate.read_gb_per_s if rate else None))
        if storage.backend == "nvme":
            stack.enter_context(self.journal.undo("reclaim_blocks", self.point.raw_writes(scratch)))
        return scratch, group

    def _start(self, stack: contextlib.ExitStack, group: RunCgroup) -> Engine:
        folder = self.workspace.folder
        arguments = [str(folder), "--handshake"]
        engine = stack.enter_context(
            running(arguments, group.procs, folder / RunFile.ENGINE_LOG, self.deadline_s, self.host.launch)
        )
        if engine.wait_for("ready") is None:
            raise self._why(engine, group)
        return engine

    def _trace(self, stack: contextlib.ExitStack, scratch: Path) -> NoTrace | RunTrace:
        return stack.enter_context(traced(self.trace, self.point.run, scratch, self.workspace.folder))

    def _limit(self, stack: contextlib.ExitStack, group: RunCgroup) -> None:
        """Set the limits from what the engine needs without KV, which it has all allocated by now."""
        process_bytes, library_bytes = group.process_bytes(), group.library_bytes()
        needed_bytes, budget_bytes = process_bytes + library_bytes, self.point.budget_bytes
        self.record["cgroup"] |= {
            "process_bytes": process_bytes,
            "library_bytes": library_bytes,
            "budget_bytes": budget_bytes,
            "limit_bytes": None,
        }
        if budget_bytes is not None:
            check_budget(self.point, budget_bytes, needed_bytes)
            self.record["cgroup"]["limit_bytes"] = group.set_limit(needed_bytes + budget_bytes)
            self.record["cgroup"]["dirty_pages"] = self._hold_dirty_pages(stack, group, budget_bytes)

    def _hold_dirty_pages(self, stack: contextlib.ExitStack, group: RunCgroup, budget_bytes: int) -> dict[str, Any]:
        if self.point.run.storage.dirty_pages == "machine":
            return {"by": "the cgroup" if group.version == 2 else "the machine"}
        return stack.enter_context(held_to_budget(budget_bytes, group.version, self.journal))

    def _go(self, engine: Engine, group: RunCgroup) -> dict[str, Any]:
        engine.send({"event": "go"})
        process_peak_bytes = 0
        for event in engine.events():
            self.report(event)
            process_peak_bytes = max(process_peak_bytes, group.process_bytes())
        self.record["cgroup"] |= {
            "process_peak_bytes": process_peak_bytes,
            "peak_bytes": group.peak_bytes(),
            "oom_kills": group.oom_kills(),
            "refaulted_pages": group.stat().get("workingset_refault_file"),
        }
        result = self.workspace.read_result()
        if engine.exit_code() or result is None:
            raise self._why(engine, group)
        check_growth(self.record["cgroup"])
        return result

    def _why(self, engine: Engine, group: RunCgroup) -> RunError:
        """Why an engine ended early: its own word, else the kernel's."""
        code = engine.exit_code()
        result = self.workspace.read_result()
        if result and result.get("error"):
            return RunError(result["error"])
        if group.oom_kills():
            return RunError(self._out_of_memory())
        if code < 0:
            return RunError(f"the engine was killed by {signal.Signals(-code).name}; run the point again")
        last = last_line(self.workspace.folder / RunFile.ENGINE_LOG) or "nothing"
        return RunError(f"the engine ended with code {code} and the last it wrote was: {last}")

    def _out_of_memory(self) -> str:
        """A group counts the kills of its own limit and those of a machine that is full."""
        limits = self.record["cgroup"]
        if limits.get("limit_bytes") is None:
            return "the machine ran out of memory and the kernel killed the engine; end other programs or raise scale"
        needed_bytes = limits["process_bytes"] + limits["library_bytes"]
        return (
            f"the kernel killed the engine at its memory limit of {limits['limit_bytes']:,} bytes, of which the "
            f"process needed {needed_bytes:,} before the run; raise memory_gb"
        )

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - start


def check_budget(point: Point, budget_bytes: int, process_bytes: int) -> None:
    """Refuse a limit that the engine cannot live with, or that the machine cannot grant.

    Raises:
        BudgetError: with what is needed and what there is.
    """
    least_bytes = process_bytes + MIN_BUDGET_BYTES
    if budget_bytes < MIN_BUDGET_BYTES:
        raise BudgetError(
            f"the process needs {process_bytes:,} bytes and the limit is {process_bytes + budget_bytes:,}, which "
            f"leaves {budget_bytes:,} for I/O; it needs at least {least_bytes:,}, so set {_least_setting(point)}"
        )
    available_bytes = environment.available_bytes()
    if budget_bytes > available_bytes:
        raise BudgetError(
            f"the limit leaves {budget_bytes:,} bytes for page cache and this machine has only {available_bytes:,} "
            "available, so the machine and not the limit would decide; lower memory_gb or raise scale"
        )


def check_growth(limits: Mapping[str, Any]) -> None:
    """Refuse a run that had less page cache than it states, as the process kept growing under its limit.

    Raises:
        RunError: with what is missing.
    """
    budget_bytes = limits["budget_bytes"]
    growth_bytes = limits["process_peak_bytes"] - limits["process_bytes"]
    if budget_bytes is not None and growth_bytes > MAX_GROWTH * budget_bytes + MAX_GROWTH_BYTES:
        raise RunError(
            f"the process grew by {growth_bytes:,} bytes after its memory was limited, out of {budget_bytes:,} for "
            "page cache, so the budget was not the one stated; run the point again, or raise memory_gb"
        )


def _least_setting(point: Point) -> str:
    """The least limit in the point's own terms, rounded up."""
    if point.budget_ratio is not None:
        return f"budget_ratio={math.ceil(100 * MIN_BUDGET_BYTES / point.working_set_bytes) / 100:g} or more"
    least_gb = point.paper_overhead_gb + MIN_BUDGET_BYTES * point.run.scale / GB
    return f"memory_gb={math.ceil(100 * least_gb) / 100:g} or more (scale {point.run.scale})"


def _overhead(result: Mapping[str, Any], total_s: float) -> dict[str, float]:
    """Total seconds of the run so far, and those that were not the engine's prefill and decode."""
    measured_s = result.get("prefill_s", 0.0) + sum(result.get("decode_s", []))
    return {"total": total_s, "overhead": total_s - measured_s}

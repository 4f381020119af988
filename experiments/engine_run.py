"""One run of the engine: storage, cgroup, engine, limit, result. Every step is undone, however the run ends."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dualblade.linux.files import last_line
from dualblade.run.run_files import RunFile
from experiments.errors import RunError
from experiments.machine import environment
from experiments.machine.caches import drop_caches
from experiments.machine.cgroup import RunCgroup
from experiments.machine.cgroup_tree import fresh_cgroup
from experiments.machine.dirty_pages import held_to_budget
from experiments.machine.host import Host
from experiments.machine.journal import Journal
from experiments.machine.scratch import scratch_folder
from experiments.machine.storage_settings import readahead
from experiments.memory_limit import check_growth, memory_needs, out_of_memory, set_limit
from experiments.points.point import Point
from experiments.processes.engine import Engine, Report, running
from experiments.results_folder import Workspace
from experiments.tracing import NoTrace, RunTrace, TraceSettings, traced


@dataclass
class EngineRun:
    """One run of the engine, or of a peer that speaks its protocol.

    `record` becomes environment.json. `seconds` holds the time of each step.
    """

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
        """Do all steps, in the order that the state of the machine requires; return result.json.

        Raises:
            MachineError: no point can be measured here.
            DualBladeError: this point has no result, and why.
        """
        with contextlib.ExitStack() as stack:
            with self._step("prepare"):
                scratch, group = self._prepare(stack)
            with self._step("start_engine"):
                engine = self._start(stack, group)
            with self._step("attach_tracer"):
                tracer = self._trace(stack, scratch)
            # Engine and tracer are in memory now. What they read to get there is dropped too, except for mapped
            # libraries, and does not count as page cache of the run.
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
        limits = self.record["cgroup"]
        limits |= memory_needs(group, self.point)
        if limits["budget_bytes"] is not None:
            limits["limit_bytes"] = set_limit(group, self.point, limits)
            limits["dirty_pages"] = self._hold_dirty_pages(stack, group, limits["budget_bytes"])

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
        """Return why an engine ended early: its own error, else what the kernel reports."""
        code = engine.exit_code()
        result = self.workspace.read_result()
        if result and result.get("error"):
            return RunError(result["error"])
        if group.oom_kills():
            return RunError(out_of_memory(self.record["cgroup"]))
        if code < 0:
            return RunError(f"the engine was killed by {signal.Signals(-code).name}; run the point again")
        last = last_line(self.workspace.folder / RunFile.ENGINE_LOG) or "nothing"
        return RunError(f"the engine ended with code {code} and the last it wrote was: {last}")

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - start

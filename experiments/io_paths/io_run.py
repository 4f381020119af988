"""Measure one I/O path: fio over the grid, each cell from a cold cache, and the mode in force read back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualblade.errors import StorageError
from dualblade.run.run_files import RunFile
from experiments.io_paths import io_target
from experiments.io_paths.io_target import IoTarget
from experiments.machine import environment, huge_pages
from experiments.machine.host import Host
from experiments.machine.journal import Journal
from experiments.machine.scratch import scratch_folder
from experiments.points.io_point import KIND, IoPoint
from experiments.processes import fio
from experiments.processes.engine import Report
from experiments.results_folder import Workspace

SCHEMA_VERSION = 1
CELL_SLACK_S = 60.0  # for a cell's last requests, on storage however slow
MIN_CACHED = 0.9  # of the bytes read through the page cache, still there afterwards


@dataclass
class IoRun:
    """One grid from start to end; `record` becomes environment.json, `seconds` its time by step."""

    point: IoPoint
    workspace: Workspace
    journal: Journal
    report: Report
    host: Host
    record: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def execute(self) -> dict[str, Any]:
        """Measure all cells in the order of the grid; result.json is written when all are measured."""
        io, start = self.point.io, time.monotonic()
        with contextlib.ExitStack() as stack:
            directory = Path(self.point.storage.directory)
            scratch = stack.enter_context(scratch_folder(directory, self.point.file_bytes, self.journal))
            self._describe(scratch)
            target = stack.enter_context(
                io_target.opened(io.path, self.point.storage, io.size_bytes, scratch, self.journal)
            )
            possible = target.cells(io)
            io_target.fill(target, io.size_bytes)
            buffers_bytes = max(size * depth for size, depth in possible) + 2 * huge_pages.HUGE_PAGE_BYTES
            huge = stack.enter_context(huge_pages.reserved(buffers_bytes, self.journal))
            self.seconds["prepare"] = time.monotonic() - start
            cells = [self._cell(target, size, depth, huge) for size, depth in possible]
            result = self._result(target, cells, huge)
        self.seconds["run"] = time.monotonic() - start - self.seconds["prepare"]
        self.workspace.write_json(RunFile.RESULT, result)
        return result

    def _describe(self, scratch: Path) -> None:
        self.record |= environment.collect(scratch) | self.host.code()
        self.record |= {
            "config_hash": self.point.config_hash,
            "code_hash": self.point.code(),
            "testbed": self.point.testbed,
            **self.host.provenance,
        }

    def _cell(self, target: IoTarget, request_bytes: int, depth: int, huge: bool) -> dict[str, Any]:
        io, done = self.point.io, self.point.io.cells.index((request_bytes, depth))
        self.report({"event": "progress", "phase": "fio", "done": done, "of": len(io.cells)})
        target.forget(io.size_bytes)
        options = [
            *target.job,
            f"--rw=rand{io.op}",
            f"--bs={request_bytes}",
            f"--iodepth={depth}",
            f"--size={io.size_bytes}",
            f"--runtime={round(io.runtime_s * 1000)}ms",  # fio takes no fractions
            *(["--iomem=mmaphuge", f"--hugepage-size={huge_pages.HUGE_PAGE_BYTES}"] if huge else []),
            *(["--end_fsync=1"] if io.op == "write" and target.cached else []),
            "--invalidate=0",
            "--fallocate=none",
            "--lat_percentiles=1",
            "--clat_percentiles=0",
            "--percentile_list=5:50:95:99",
            "--thread",
        ]
        cell = read_cell(fio.run(options, io.runtime_s + CELL_SLACK_S), io.op)
        check_mode(target, cell["bytes"], target.resident_bytes(io.size_bytes))
        return {"request_bytes": request_bytes, "queue_depth": depth, **cell}

    def _result(self, target: IoTarget, cells: list[dict[str, Any]], huge: bool) -> dict[str, Any]:
        return {
            "schema": SCHEMA_VERSION,
            "kind": KIND,
            "status": "done",
            "error": None,
            "target": target.what,
            "most_request_bytes": target.most_request_bytes,
            "buffers": "huge pages" if huge else "pages",
            "cells": cells,
        }


def read_cell(job: Mapping[str, Any], op: str) -> dict[str, Any]:
    """What fio measured in one cell: bytes, rate, and the latency of a request from submission to completion."""
    done = job[op]
    latency = done["lat_ns"]
    percentiles = {int(float(name)): value / 1e3 for name, value in latency["percentile"].items()}
    return {
        "bytes": done["io_bytes"],
        "requests": done["total_ios"],
        "bytes_per_s": float(done["bw_bytes"]),
        "seconds": done["runtime"] / 1e3,
        "latency_us": {"mean": latency["mean"] / 1e3, **{f"p{n}": value for n, value in percentiles.items()}},
        "cpu": {"user_share": job["usr_cpu"] / 100, "system_share": job["sys_cpu"] / 100},
    }


def check_mode(target: IoTarget, moved_bytes: int, resident_bytes: int) -> None:
    """Compare the page cache after a cell, which was empty before it, with the path that was asked for.

    Raises:
        StorageError: a direct path left pages, or a buffered one left none.
    """
    if not target.cached and resident_bytes:
        raise StorageError(f"{target.what}: not direct, the page cache holds {resident_bytes:,} bytes of it afterwards")
    if target.cached and resident_bytes < MIN_CACHED * moved_bytes:
        raise StorageError(
            f"{target.what} kept {resident_bytes:,} of {moved_bytes:,} bytes cached; free memory or lower io.size_mib"
        )

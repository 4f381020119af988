"""Writes synthetic device traces beside results: plainly made up, for tests only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.analysis_results import write_run
from traces import schema

TENSOR_BYTES, ROW_BYTES = 2 << 20, 4096
COMMAND: dict[str, Any] = {
    "device": "vda",
    "queue": 0,
    "cid": -1,
    "op": "read",
    "offset_bytes": 0,
    "bytes": 4096,
    "issue_ns": 0,
    "complete_ns": 1000,
    "status": 0,
    "depth_at_issue": 1,
    "layer": 0,
    "kind": "k",
    "path": "direct",
    "tensor_offset_bytes": 0,
    "phase": "decode",
    "iteration": 2,
}
REQUEST: dict[str, Any] = {
    "phase": "decode",
    "iteration": 2,
    "layer": 0,
    "kind": "k",
    "op": "read",
    "path": "direct",
    "bytes": 4096,
    "storage_start_ns": 0,
    "storage_end_ns": 1000,
}


def write_trace(
    run_dir: Path,
    commands: Iterable[Mapping[str, Any]],
    requests: Iterable[Mapping[str, Any]] = (),
    **info: Any,
) -> None:
    """Write device_io.parquet and kv_io.parquet; what a row does not say is as in COMMAND and REQUEST."""
    run_dir.mkdir(parents=True, exist_ok=True)
    about = schema.TraceInfo(source="synthetic", clock="CLOCK_MONOTONIC", **{"valid": True, **info})
    rows = [{**COMMAND, **command} for command in commands]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema.with_info(about)), run_dir / schema.FILE_NAME)
    pq.write_table(pa.Table.from_pylist([{**REQUEST, **request} for request in requests]), run_dir / "kv_io.parquet")


def write_traced_run(results_dir: Path, variant: str, repetition: int = 0, **overrides: Any) -> Path:
    """A run at 2 GB: two threads, one for K and one for V; prefill writes, then in 3 iterations reads and a row each.

    The Baseline's commands are of 128 KiB, alternate between the tensors and leave gaps; the others' are of 512 KiB,
    and twice as fast.
    """
    run_dir = write_run(
        results_dir,
        variant,
        2.0,
        repetition,
        **{"experiment": "traced", "config": {"trace.name": "block_requests"}, **overrides},
    )
    size, us = (128 << 10, 60) if variant == "baseline" else (512 << 10, 120)
    commands: list[dict[str, Any]] = []
    requests: list[dict[str, Any]] = []
    now = 10**9
    for phase, iteration, op, total in [("prefill", 0, "write", TENSOR_BYTES)] + [
        (phase, iteration, op, total)
        for iteration in (1, 2, 3)
        for phase, op, total in (("decode", "read", TENSOR_BYTES), ("decode", "write", ROW_BYTES))
    ]:
        begin, where = now, {"phase": phase, "iteration": iteration, "op": op}
        for offset in range(0, total, size):
            moved = min(size, total)
            for thread, kind in enumerate("kv"):
                commands.append(
                    where
                    | {
                        "kind": kind,
                        "queue": thread,
                        "offset_bytes": 2 * thread * TENSOR_BYTES + offset,
                        "bytes": moved,
                        "issue_ns": now + 1000 * thread,
                        "complete_ns": now + us * 1000,
                        "depth_at_issue": thread + 1,
                    }
                )
            now += us * (1500 if variant == "baseline" else 1000)
        requests += [
            where | {"kind": kind, "bytes": total, "storage_start_ns": begin, "storage_end_ns": now} for kind in "kv"
        ]
        now += 10**5
    write_trace(run_dir, commands, requests)
    return run_dir

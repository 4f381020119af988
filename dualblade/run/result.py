"""result.json: what one run measured, and the state of the kernel it was measured under."""

from __future__ import annotations

import dataclasses
import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from dualblade.config.run import RunConfig
from dualblade.errors import StorageError
from dualblade.linux.proc import own_status
from dualblade.model.roofline import ComputeTime
from dualblade.paths.direct import NvmeDirect
from dualblade.paths.page_cache import PageCache
from dualblade.plan.budget import Budget
from dualblade.record.io_log import Operation
from dualblade.record.phases import PhaseTimes
from dualblade.run.result_schema import (
    SCHEMA_VERSION,
    BreakdownResult,
    BudgetResult,
    ComputeResult,
    DeallocationResult,
    HitRates,
    PathResults,
    PinnedResult,
    PlanResult,
    ProcessResult,
    RunResult,
    Traffic,
)
from dualblade.store import KVStore

# Share of evicted bytes that may still be in the page cache afterwards: reclaim can hold a page for a moment.
MAX_LEFT = 0.01


def run_result(
    config: RunConfig,
    store: KVStore,
    budget: Budget,
    compute: ComputeTime,
    times: PhaseTimes,
    startup_s: float,
    tokens: dict[str, Any] | None,
) -> RunResult:
    """Collect what the run measured, while the store is still open; `deallocated` is known only after it is closed."""
    decode_s = times.decode_s
    decoded = [op for op in store.operations if 1 <= op.iteration <= len(decode_s)]
    return {
        "schema": SCHEMA_VERSION,
        "status": "done",
        "error": None,
        "variant": config.variant.name,
        "prefill_s": times.prefill_s,
        "decode_s": decode_s,
        "tokens_per_s": config.batch_size * len(decode_s) / sum(decode_s),
        "hit_rate": hit_rates(decoded, len(decode_s)),
        "bytes": {
            "prefill": traffic(op for op in store.operations if op.phase == "prefill"),
            "decode": traffic(decoded),
        },
        "budget": cast(BudgetResult, dataclasses.asdict(budget) | {"pinned_bytes": store.pinned.bytes}),
        "plan": _plan(store),
        **_paths(config, store),
        "pinned": cast(PinnedResult, dataclasses.asdict(store.pinned)),
        "link": store.link.summary(),
        "pipeline": store.policy.summary(),
        "phases": cast(dict[str, BreakdownResult], times.breakdown(store.activity, store.operations)),
        "compute": cast(ComputeResult, dataclasses.asdict(compute)),
        "process": _process(startup_s),
        "tokens": tokens,
        "deallocated": None,
    }


def tensor_placements(store: KVStore) -> dict[str, Any]:
    """Content of extents.json: for each tensor its pieces, [byte of the tensor, byte of the device, bytes]."""
    placements = ((tensor, *store.placement(tensor)) for tensor in store.geometry.tensors)
    return {
        "schema": SCHEMA_VERSION,
        "tensors": [
            {"layer": tensor.layer, "kind": tensor.kind, "path": path} | dataclasses.asdict(placement)
            for tensor, path, placement in placements
        ],
    }


def verify(result: RunResult) -> None:
    """Check that the I/O modes read back are those that were asked for.

    Raises:
        StorageError: direct I/O went through the page cache, or pages that were evicted are still there.
    """
    direct, eviction = result["io_mode"]["direct"], result["eviction"]
    if direct and (not (direct["o_direct"] or direct["passthrough"]) or direct["resident_bytes_after"]):
        raise StorageError(
            f"the direct path was not direct: O_DIRECT in force is {direct['o_direct']} and the page cache holds "
            f"{direct['resident_bytes_after']:,} bytes of its target; is another program reading it?"
        )
    if eviction["left_bytes"] > MAX_LEFT * eviction["asked_bytes"]:
        raise StorageError(
            f"of {eviction['asked_bytes']:,} bytes that were evicted the page cache still held "
            f"{eviction['left_bytes']:,}; is another program reading the files in storage.directory?"
        )


def hit_rates(decoded: list[Operation], iterations: int) -> HitRates:
    """Share of the KV bytes read that storage did not have to deliver; the first iteration is cold and left out.

    Prefill reads nothing, so it has no hit rate.
    """
    per_iteration = [
        _hit_rate(op for op in decoded if op.op == "read" and op.iteration == i) for i in range(1, iterations + 1)
    ]
    warm = (op for op in decoded if op.op == "read" and (op.iteration > 1 or iterations == 1))
    return {"prefill": None, "decode": _hit_rate(warm), "decode_per_iteration": per_iteration}


def _hit_rate(reads: Iterable[Operation]) -> float | None:
    counted = traffic(reads)
    asked_bytes = counted["asked_read"]
    return 1 - counted["device_read"] / asked_bytes if asked_bytes else None


def traffic(operations: Iterable[Operation]) -> Traffic:
    """Sum the bytes asked for and the bytes that the kernel accounted as block I/O (for buffered writes: dirtied)."""
    sums: Traffic = {"asked_read": 0, "device_read": 0, "asked_write": 0, "device_write": 0}
    for op in operations:
        sums["asked_read" if op.op == "read" else "asked_write"] += op.bytes
        sums["device_read"] += op.device_read_bytes
        sums["device_write"] += op.device_written_bytes
    return sums


def _plan(store: KVStore) -> PlanResult:
    plan, geometry = store.plan, store.geometry
    assert plan is not None
    return {
        "knob_bytes": plan.knob_bytes,
        "n1": plan.n1,
        "n_layers": geometry.n_layers,
        "layers": list(plan.layers),
        "kpu_bytes": max(geometry.kpu_bytes),
        "working_set_bytes": geometry.working_set_bytes,
    }


def _paths(config: RunConfig, store: KVStore) -> PathResults:
    direct = direct_path(store)
    cached = [path for path in store.paths.values() if isinstance(path, PageCache)]
    evictions = [path.eviction for path in cached]
    return {
        "backend": ("paced " if config.storage.pace else "") + config.storage.backend,
        "io_mode": {
            "page_cache": cached[0].io_mode() if cached else None,
            "direct": direct.io_mode() if direct else None,
        },
        "queue_depth": {
            "read": direct.stats("read").mean_depth if direct else None,
            "write": direct.stats("write").mean_depth if direct else None,
        },
        "eviction": {
            "asked_bytes": sum(eviction.asked_bytes for eviction in evictions),
            "left_bytes": sum(eviction.left_bytes for eviction in evictions),
        },
    }


def direct_path(store: KVStore) -> NvmeDirect | None:
    """Return the path of Group 2, if the plan has one."""
    return next((path for path in store.paths.values() if isinstance(path, NvmeDirect)), None)


def deallocation(direct: NvmeDirect | None) -> DeallocationResult | None:
    """Return what the device deallocated at the end of the run; None if no device did."""
    done = direct.target.deallocated if direct else None
    return cast(DeallocationResult, dataclasses.asdict(done)) if done else None


def _process(startup_s: float) -> ProcessResult:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    status = own_status()
    return {
        "startup_s": startup_s,
        "anon_bytes": status["RssAnon"],
        "peak_rss_bytes": status["VmHWM"],
        "cpu_user_s": usage.ru_utime,
        "cpu_system_s": usage.ru_stime,
    }


def seconds_since_start() -> float:
    """Seconds since this process was started (proc(5), stat: starttime)."""
    started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")

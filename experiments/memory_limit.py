"""The memory limit of a run: what the process needs without KV, plus the point's budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dualblade.errors import BudgetError
from dualblade.units import GB
from experiments.errors import RunError
from experiments.machine import environment
from experiments.machine.cgroup import RunCgroup
from experiments.points.point import Point

# What I/O through the page cache needs to go on at all: pages under writeback and readahead, and the kernel's own
# growth while files are written. With less the kernel kills the process sooner or later.
MIN_BUDGET_BYTES = 8 << 20
# Growth of the process that is allowed after the limit is set: 10 % of the budget (2.5 % is the kernel's page
# accounting) and 2 MiB.
MAX_GROWTH, MAX_GROWTH_BYTES = 0.1, 2 << 20


def memory_needs(group: RunCgroup, point: Point) -> dict[str, Any]:
    """Return what an engine needs that has allocated all it needs without KV, and the point's budget beside it."""
    return {
        "process_bytes": group.process_bytes(),
        "library_bytes": group.library_bytes(),
        "budget_bytes": point.budget_bytes,
        "limit_bytes": None,
    }


def set_limit(group: RunCgroup, point: Point, limits: Mapping[str, Any]) -> int:
    """Limit a group to what `memory_needs` found and the budget; return the limit that is in force.

    Raises:
        BudgetError: the engine cannot run under this limit, or the machine cannot provide it.
    """
    needed_bytes = limits["process_bytes"] + limits["library_bytes"]
    check_budget(point, limits["budget_bytes"], needed_bytes)
    return group.set_limit(needed_bytes + limits["budget_bytes"])


def check_budget(point: Point, budget_bytes: int, process_bytes: int) -> None:
    """Refuse a budget that is too small for I/O, or larger than the machine's free memory.

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
    """Refuse a run whose process grew under its limit, so that less page cache was left than stated.

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


def out_of_memory(limits: Mapping[str, Any]) -> str:
    """Return why the kernel killed the engine: a cgroup counts the kills of its limit and those of a full machine."""
    if limits.get("limit_bytes") is None:
        return "the machine ran out of memory and the kernel killed the engine; end other programs or raise scale"
    needed_bytes = limits["process_bytes"] + limits["library_bytes"]
    return (
        f"the kernel killed the engine at its memory limit of {limits['limit_bytes']:,} bytes, of which the "
        f"process needed {needed_bytes:,} before the run; raise memory_gb"
    )


def _least_setting(point: Point) -> str:
    """Return the smallest limit in the point's own terms, rounded up."""
    if point.budget_ratio is not None:
        return f"budget_ratio={math.ceil(100 * MIN_BUDGET_BYTES / point.working_set_bytes) / 100:g} or more"
    least_gb = point.paper_overhead_gb + MIN_BUDGET_BYTES * point.run.scale / GB
    return f"memory_gb={math.ceil(100 * least_gb) / 100:g} or more (scale {point.run.scale})"

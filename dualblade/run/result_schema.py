"""result.json: its version, every key that the engine writes, and the form of a failed run's result.

Units are in the names; traffic is in bytes. `| None` marks values that can be null. A run of an I/O path by itself has
`target`, `buffers` and `cells` in place of these (experiments.io_paths).
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

SCHEMA_VERSION = 1
IO_PATHS_KIND = "io_paths"  # `kind` of a result that fio measured on an I/O path, without the engine


class Traffic(TypedDict):
    """Bytes asked for, and bytes that the kernel accounted as block I/O (for buffered writes: dirtied)."""

    asked_read: int
    device_read: int
    asked_write: int
    device_write: int


class PhaseTraffic(TypedDict):
    prefill: Traffic
    decode: Traffic


class HitRates(TypedDict):
    """Share of the bytes read that storage did not deliver; `decode` leaves the first, cold iteration out."""

    prefill: None
    decode: float | None
    decode_per_iteration: list[float | None]


class BudgetResult(TypedDict):
    """plan.budget.Budget, and the size of the pinned buffers."""

    b_pc_bytes: int
    limit_bytes: int | None
    limited_by: str
    process_bytes: int
    system_available_bytes: int
    pinned_bytes: int


class PlanResult(TypedDict):
    """The plan of residency: `layers` names each layer's path, and `n1` of them are in Group 1.

    `knob_bytes` is None if all layers go to the page cache.
    """

    knob_bytes: int | None
    n1: int
    n_layers: int
    layers: list[str]
    kpu_bytes: int
    working_set_bytes: int


class IoModes(TypedDict):
    """Modes read back from the kernel; None for a path that the plan does not use."""

    page_cache: dict[str, Any] | None
    direct: dict[str, Any] | None


class QueueDepths(TypedDict):
    """Mean number of commands in flight on the direct path; None without one."""

    read: float | None
    write: float | None


class EvictionResult(TypedDict):
    """paths.page_cache.Eviction, summed over the files."""

    asked_bytes: int
    left_bytes: int


class PathResults(TypedDict):
    """Backend and modes of the paths that the run used."""

    backend: str
    io_mode: IoModes
    queue_depth: QueueDepths
    eviction: EvictionResult


class PinnedResult(TypedDict):
    """paths.pinned.PinnedState."""

    buffers: int
    bytes: int
    locked: bool
    huge_page_bytes: int


class BreakdownResult(TypedDict):
    """record.phases.Breakdown: wall time of a phase and its parts."""

    wall_s: float
    compute_s: float
    storage_stall_s: float
    link_stall_s: float
    other_s: float


class ComputeResult(TypedDict):
    """model.roofline.ComputeTime; `source` is None without compute."""

    source: str | None
    prefill_layer_s: float
    decode_layer_s: float


class ProcessResult(TypedDict):
    """The engine's process at the end of the run."""

    startup_s: float
    anon_bytes: int
    peak_rss_bytes: int
    cpu_user_s: float
    cpu_system_s: float


class DeallocationResult(TypedDict):
    """targets.base.Deallocation: blocks that the device was told to deallocate, and what they read afterwards."""

    bytes: int
    checked_bytes: int
    zero_bytes: int
    zeroes_promised: bool


class RunResult(PathResults):
    """A run that was measured. `tokens` is None in a replay; `deallocated` is None unless a device did so."""

    schema: int
    status: Literal["done"]
    error: None
    variant: str
    prefill_s: float
    decode_s: list[float]
    tokens_per_s: float
    hit_rate: HitRates
    bytes: PhaseTraffic
    budget: BudgetResult
    plan: PlanResult
    pinned: PinnedResult
    link: dict[str, Any]
    pipeline: dict[str, Any]
    phases: dict[str, BreakdownResult]
    compute: ComputeResult
    process: ProcessResult
    tokens: dict[str, Any] | None
    deallocated: DeallocationResult | None


class FailedResult(TypedDict):
    """A run that failed; `variant` is None where its configuration could not be read."""

    schema: int
    status: Literal["failed"]
    error: str
    variant: str | None


def failed_result(variant: str | None, error: str) -> FailedResult:
    """The result of a run that failed, with the reason as one sentence."""
    return {"schema": SCHEMA_VERSION, "status": "failed", "error": error, "variant": variant}

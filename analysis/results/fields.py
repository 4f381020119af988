"""Fields of a run's three documents that analysis relies on, and what each of them may hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

LARGEST = 2**62  # larger than any size, time or count of a run; a column of a frame cannot hold more


class Kind(NamedTuple):
    """The values that a field may have, in words and as a test."""

    text: str
    fits: Callable[[Any], bool]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST


def _is_number(value: Any) -> bool:
    return _is_count(value) or (isinstance(value, float) and math.isfinite(value))


def _is_step(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("strategy"), str)


TEXT = Kind("a text", lambda value: isinstance(value, str))
SWITCH = Kind("true or false", lambda value: isinstance(value, bool))
COUNT = Kind("a whole number", _is_count)
POSITIVE = Kind("a positive whole number", lambda value: _is_count(value) and value > 0)
NUMBER = Kind("a finite number", _is_number)
NUMBERS = Kind("a list of finite numbers", lambda value: isinstance(value, list) and all(map(_is_number, value)))
MAPPINGS = Kind("a list of mappings", lambda value: isinstance(value, list) and all(isinstance(v, dict) for v in value))
STEPS = Kind("a list of iterations", lambda value: isinstance(value, list) and all(map(_is_step, value)))
TEXTS = Kind("a list of texts", lambda value: isinstance(value, list) and all(map(TEXT.fits, value)))

# Required of every run; then also of a run of the engine, and of a run of an I/O path.
REQUIRED_OF_ALL: dict[str, Kind] = {
    "config.storage.backend": TEXT,
    "config.testbed.name": TEXT,
    "config.repetition": COUNT,
    "environment.config_hash": TEXT,
    "environment.code_hash": TEXT,
    "environment.kernel": TEXT,
    "environment.started_at": TEXT,
}
REQUIRED: dict[str, Kind] = REQUIRED_OF_ALL | {
    "config.variant.name": TEXT,
    "config.model.name": TEXT,
    "config.workload.name": TEXT,
    "config.workload.batch_size": POSITIVE,
    "config.scale": POSITIVE,
    "config.paper_overhead_gb": NUMBER,
    "result.prefill_s": NUMBER,
    "result.decode_s": NUMBERS,
    "result.hit_rate.decode": NUMBER,
    "result.hit_rate.decode_per_iteration": NUMBERS,
    "result.plan.working_set_bytes": POSITIVE,
}
# What else analysis uses: where it is there and not null, it is of this kind.
OPTIONAL: dict[str, Kind] = {
    "config.memory_gb": NUMBER,
    "config.budget_ratio": NUMBER,
    "config.workload.source": TEXT,
    "config.device.name": TEXT,
    "config.device.copy_threads": POSITIVE,
    "config.device.gpu.name": TEXT,
    "config.trace.name": TEXT,
    "config.variant.pipeline": TEXT,
    "config.storage.name": TEXT,
    "config.device.link": TEXT,
    "config.storage.pace.read_gb_per_s": NUMBER,
    "environment.emulated": SWITCH,
    "environment.cpu": TEXT,
    "environment.guest.accelerator": TEXT,
    "environment.code_dirty": SWITCH,
    "environment.code_revision": TEXT,
    "environment.cgroup.version": COUNT,
    "environment.lru_generation": TEXT,
    "environment.storage.name": TEXT,
    "environment.storage.model": TEXT,
    "environment.storage.serial": TEXT,
    "environment.storage.file_system": TEXT,
    "result.bytes.prefill.device_write": COUNT,
    "result.bytes.decode.device_write": COUNT,
    "result.link.gb_per_s": NUMBER,
    "result.pinned.bytes": COUNT,
    "result.pinned.locked": SWITCH,
    "result.pipeline.groups.direct.choice": TEXT,
    "result.pipeline.groups.direct.iterations": STEPS,
    "result.plan.kpu_bytes": POSITIVE,
    "result.plan.layers": TEXTS,
    "result.tokens.answers.right": COUNT,
    "result.tokens.answers.of": POSITIVE,
    "result.tokens.answers.examples": COUNT,
}
PARTS = ("compute_s", "storage_stall_s", "link_stall_s", "other_s")
OPTIONAL |= {f"result.phases.{phase}.{name}": NUMBER for phase in ("prefill", "decode") for name in ("wall_s", *PARTS)}
REQUIRED_OF_IO: dict[str, Kind] = REQUIRED_OF_ALL | {
    "config.io.path": TEXT,
    "config.io.op": TEXT,
    "config.io.size_mib": POSITIVE,
    "result.target": TEXT,
    "result.buffers": TEXT,
    "result.cells": MAPPINGS,
}
REQUIRED_OF_CELL: dict[str, Kind] = {
    "request_bytes": POSITIVE,
    "queue_depth": POSITIVE,
    "bytes_per_s": NUMBER,
    "latency_us.mean": NUMBER,
    "latency_us.p50": NUMBER,
}

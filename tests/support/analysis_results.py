"""Writes results folders as the harness does, with numbers that follow a formula: plainly synthetic, for tests only."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

VARIANTS = ("baseline", "cachepolicy_only", "nvme_direct_only", "dual_blade")
LIMITS_GB = (2.0, 4.0, 6.0, 8.0, 9.5, 9.75, 10.0, 11.0)
ITERATIONS = 8
WORKING_SET_BYTES = (512 + ITERATIONS) * 4 * 4096 * 2 * 2 * 32

CONFIG: dict[str, Any] = {
    "variant": {"name": "baseline", "knob": "all", "overflow": "leave", "slack": 0.05},
    "model": {"name": "opt_6_7b", "n_layers": 32, "n_kv_heads": 32, "head_dim": 128},
    "workload": {
        "name": "paper",
        "batch_size": 32,
        "prompt_tokens": 512,
        "generated_tokens": 32,
        "source": "replay",
    },
    "storage": {"name": "file", "directory": "kv", "backend": "file", "page_cache_io": "mmap", "read_ahead_kb": 128},
    "device": {"name": "host", "link": "host", "gpu": {"name": "Test GPU"}, "copy_threads": 2},
    "experiment": "default",
    "testbed": {"name": "local"},
    "trace": {"name": "none"},
    "scale": 8,
    "decode_iterations": ITERATIONS,
    "memory_gb": 4.0,
    "budget_ratio": None,
    "paper_overhead_gb": 1.0,
    "repetition": 0,
}

ENVIRONMENT: dict[str, Any] = {
    "schema": 1,
    "started_at": "2000-01-01T00:00:00+00:00",
    "code_revision": "1234567890abcdef",
    "code_dirty": False,
    "code_hash": "fedcba0987654321",
    "kernel": "6.0-synthetic",
    "cgroup": {"version": 1},
    "emulated": False,
    "storage": {
        "name": "vda",
        "model": "synthetic disk",
        "serial": "S1",
        "file_system": "ext4",
        "read_ahead_kb": "128",
    },
    "lru_generation": "absent",
}


def synthetic_result(variant: str, memory_gb: float, repetition: int = 0) -> dict[str, Any]:
    """A result whose hit rate is the paper's ideal: the cliff, the lines, the constant."""
    share = min(1.0, max(0.0, (memory_gb - 1.0) * 1e9 / 8 / WORKING_SET_BYTES))
    hit_rate = {
        "baseline": float(share == 1.0),
        "cachepolicy_only": share * 0.95,
        "nvme_direct_only": 0.0,
        "dual_blade": int(share * 32 * 0.95) / 32,
    }.get(variant, share / 2)
    slow = 1 + 0.02 * repetition
    decode_s = (0.1 + (1 - hit_rate) * (0.3 if variant in ("nvme_direct_only", "dual_blade") else 0.5)) * slow
    return {
        "schema": 1,
        "status": "done",
        "error": None,
        "variant": variant,
        "prefill_s": (1.5 + 0.1 * hit_rate) * slow,
        "decode_s": [2 * decode_s] + [decode_s] * (ITERATIONS - 1),
        "tokens_per_s": 4 / decode_s,
        "hit_rate": {
            "prefill": None,
            "decode": hit_rate,
            "decode_per_iteration": [0.0] + [hit_rate] * (ITERATIONS - 1),
        },
        "plan": {"n1": int(hit_rate * 32), "n_layers": 32, "working_set_bytes": WORKING_SET_BYTES},
        "backend": "file",
    }


def write_run(
    results_dir: Path,
    variant: str = "baseline",
    memory_gb: float | None = 4.0,
    repetition: int = 0,
    experiment: str = "default",
    config: dict[str, Any] | None = None,
    environment: dict[str, Any] | None = None,
    result: dict[str, Any] | None = None,
) -> Path:
    """Write one run; `config`, `environment` and `result` override fields by their dotted names."""
    run_dir = results_dir / experiment / f"{variant}-{memory_gb}" / f"rep-{repetition}"
    run_dir.mkdir(parents=True)
    documents = {
        "config.yaml": _override(
            CONFIG,
            {"variant.name": variant, "memory_gb": memory_gb, "repetition": repetition, "experiment": experiment}
            | (config or {}),
        ),
        "environment.json": _override(ENVIRONMENT, {"config_hash": str(run_dir)} | (environment or {})),
        "result.json": _override(synthetic_result(variant, memory_gb or 4.0, repetition), result or {}),
    }
    for name, document in documents.items():
        (run_dir / name).write_text(json.dumps(document))  # which is YAML, too
    return run_dir


def write_io(
    results_dir: Path,
    path: str = "ext4_direct",
    repetition: int = 0,
    op: str = "read",
    config: dict[str, Any] | None = None,
    environment: dict[str, Any] | None = None,
    result: dict[str, Any] | None = None,
) -> Path:
    """Write one run of an I/O path by itself: a request takes 50 us and 1 us per 4 KiB, times its queue depth."""
    run_dir = results_dir / "io_paths" / f"{path}-{op}" / f"rep-{repetition}"
    run_dir.mkdir(parents=True)
    cells = [io_cell(kib << 10, depth) for kib in (4, 64, 256, 1024) for depth in (1, 16)]
    documents = {
        "config.yaml": {
            "io": {"path": path, "op": op, "size_mib": 64},
            "storage": CONFIG["storage"],
            "testbed": {"name": "local"},
            "repetition": repetition,
        }
        | (config or {}),
        "environment.json": _override(ENVIRONMENT, {"config_hash": str(run_dir)} | (environment or {})),
        "result.json": {
            "schema": 1,
            "kind": "io_paths",
            "status": "done",
            "error": None,
            "target": "a loop device over a file" if path == "block_direct" else "a file",
            "buffers": "pages",
            "cells": cells,
        }
        | (result or {}),
    }
    for name, document in documents.items():
        (run_dir / name).write_text(json.dumps(document))
    return run_dir


def io_cell(request_bytes: int, depth: int) -> dict[str, Any]:
    mean_us = depth * (50 + request_bytes / 4096)
    return {
        "request_bytes": request_bytes,
        "queue_depth": depth,
        "bytes_per_s": depth * request_bytes / mean_us * 1e6,
        "latency_us": {"mean": mean_us, "p50": mean_us, "p99": 2 * mean_us},
    }


def write_sweep(
    results_dir: Path,
    variants: Iterable[str] = VARIANTS,
    limits_gb: Iterable[float] = LIMITS_GB,
    repetitions: int = 1,
    **overrides: Any,
) -> None:
    """Write the runs of a whole sweep."""
    limits = tuple(limits_gb)
    for variant in variants:
        for memory_gb in limits:
            for repetition in range(repetitions):
                write_run(results_dir, variant, memory_gb, repetition, **overrides)


def _override(document: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    for name, value in fields.items():
        *sections, field = name.split(".")
        section = changed
        for key in sections:
            section = section[key]
        section[field] = value
    return changed

"""A results folder as tidy frames. What cannot be used is left out with one sentence, and nothing else is lost by it.

Column names say where a value comes from: `result.prefill_s` is `prefill_s` of result.json, `config.model.name` is in
config.yaml, `environment.kernel` in environment.json.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from dualblade.errors import DualBladeError

DEFAULT_RESULTS = Path("results")
SCHEMA = 1
SHOWN_CHARS = 80
LARGEST = 2**62  # beyond it no size, time or count of a run is meant, and a frame has no column for it


class Kind(NamedTuple):
    """What a field may hold, in words and as a test."""

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

REQUIRED: dict[str, Kind] = {
    "config.variant.name": TEXT,
    "config.model.name": TEXT,
    "config.workload.name": TEXT,
    "config.workload.batch_size": POSITIVE,
    "config.storage.backend": TEXT,
    "config.scale": POSITIVE,
    "config.paper_overhead_gb": NUMBER,
    "config.testbed.name": TEXT,
    "config.repetition": COUNT,
    "environment.config_hash": TEXT,
    "environment.code_hash": TEXT,
    "environment.kernel": TEXT,
    "environment.started_at": TEXT,
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
MOST_UNEXPLAINED = 0.02  # of a phase's wall time, by which the sum of its parts may differ
IO_PATHS = "io_paths"  # what result.json says it is when fio measured an I/O path by itself
REQUIRED_OF_IO: dict[str, Kind] = {
    "config.io.path": TEXT,
    "config.io.op": TEXT,
    "config.io.size_mib": POSITIVE,
    "config.storage.backend": TEXT,
    "config.testbed.name": TEXT,
    "config.repetition": COUNT,
    "environment.config_hash": TEXT,
    "environment.code_hash": TEXT,
    "environment.kernel": TEXT,
    "environment.started_at": TEXT,
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

_YamlLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ResultsError(DualBladeError):
    """A results folder, or one run in it, cannot be used."""


@dataclass(frozen=True)
class Results:
    """`runs`: one row per run of the engine, indexed by its folder; `iterations`: one per decode iteration.

    `io`: one row per run of an I/O path by itself, whose `result.cells` hold request sizes and queue depths.
    `skipped`: sentences on what was left out. Column `folder` of the runs is where a run's other files are
    (kv_io.parquet, device_io.parquet), `kernel_series` the kernel's release without its patches, as in 6.1.
    """

    runs: pd.DataFrame
    iterations: pd.DataFrame
    skipped: tuple[str, ...]
    io: pd.DataFrame


def load(results_dir: Path) -> Results:
    """Read every finished run below `results_dir`."""
    documents: dict[str, dict[str, Any]] = {}
    reasons = dict.fromkeys(find_unfinished(results_dir), "it is not finished, its sweep still runs or was stopped")
    for run_dir in find_runs(results_dir):
        try:
            documents[run_dir.relative_to(results_dir).as_posix()] = read_run(run_dir)
        except ResultsError as error:
            reasons[run_dir] = str(error)
    for run, successor in _superseded(documents).items():
        del documents[run]
        reasons[results_dir / run] = f"the same point was measured again in {successor}"
    skipped = tuple(f"{run_dir} is left out: {reason}" for run_dir, reason in reasons.items())
    io_documents = {run: documents.pop(run) for run in list(documents) if is_io(documents[run]["result"])}
    runs = _runs(documents, REQUIRED)
    runs["folder"] = [results_dir / run for run in runs.index]
    return Results(runs, _iterations(runs), skipped, _runs(io_documents, REQUIRED_OF_IO))


def find_runs(results_dir: Path) -> list[Path]:
    """Folders of the layout <experiment>/<point>/rep-N."""
    return sorted(path for path in results_dir.glob("[!.]*/[!.]*/rep-*") if path.is_dir())


def find_unfinished(results_dir: Path) -> list[Path]:
    """Hidden siblings, in which the harness prepares a run before it renames it into place."""
    return sorted(path for path in results_dir.glob("[!.]*/[!.]*/.rep-*") if path.is_dir())


def read_run(run_dir: Path) -> dict[str, Any]:
    """The three documents of a run, checked.

    Raises:
        ResultsError: the run failed, is of another schema, or a file is missing or damaged.
    """
    result = _read(run_dir / "result.json")
    if result.get("schema") != SCHEMA:
        raise ResultsError(f"result.json has schema {result.get('schema')!r}, and this version reads {SCHEMA}")
    if result.get("status") != "done":
        raise ResultsError(f"the run {result.get('status')}: {result.get('error')}; start its sweep again to retry it")
    run = {
        "config": _read(run_dir / "config.yaml"),
        "environment": _read(run_dir / "environment.json"),
        "result": result,
    }
    for name, expected in (REQUIRED_OF_IO if is_io(result) else REQUIRED).items():
        _check(name, _lookup(run, name), expected)
    for name, expected in OPTIONAL.items():
        if (value := _lookup(run, name)) is not None:
            _check(name, value, expected)
    (_check_cells if is_io(result) else _check_iterations)(result)
    for phase in ("prefill", "decode"):
        _check_parts(phase, _lookup(result, f"phases.{phase}"))
    return run


def is_io(result: Mapping[str, Any]) -> bool:
    """Whether fio measured an I/O path by itself, and no KV was moved."""
    return result.get("kind") == IO_PATHS


def _check_cells(result: dict[str, Any]) -> None:
    for cell in result["cells"]:
        for name, expected in REQUIRED_OF_CELL.items():
            _check(f"result.cells.{name}", _lookup(cell, name), expected)


def _check_iterations(result: dict[str, Any]) -> None:
    latencies, hit_rates = result["decode_s"], result["hit_rate"]["decode_per_iteration"]
    if len(latencies) != len(hit_rates):
        raise ResultsError(f"result.json has {len(latencies)} decode latencies and {len(hit_rates)} hit rates")


def _check_parts(phase: str, seconds: Any) -> None:
    """Hold a phase's parts against its wall time, where all of them were recorded."""
    wall_s, *parts_s = (_lookup(seconds, name) for name in ("wall_s", *PARTS))
    if None in (wall_s, *parts_s):
        return
    if abs(sum(parts_s) - wall_s) > MOST_UNEXPLAINED * wall_s:
        raise ResultsError(
            f"phases.{phase} in result.json has parts of {sum(parts_s):.6g} s in all, and a wall time of "
            f"{wall_s:.6g} s; measure it again"
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else yaml.load(text, _YamlLoader)
    except FileNotFoundError:
        raise ResultsError(f"it holds no {path.name}, so the run is not complete") from None
    except OSError as error:
        raise ResultsError(f"{path.name} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ResultsError(f"{path.name} is damaged ({' '.join(str(error).split())}); delete the folder") from None
    if not isinstance(content, dict):
        raise ResultsError(f"{path.name} holds {type(content).__name__}, expected a mapping")
    return content


def optional(runs: pd.DataFrame, column: str) -> pd.Series:
    """A column that older results, or other machines, do not have: missing values then."""
    return runs[column] if column in runs else pd.Series(None, index=runs.index, dtype=object)


def _superseded(documents: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Older runs of a point and repetition that another sweep measured again, with the run to take instead."""
    newest: dict[str, str] = {}
    superseded = {}
    for run in sorted(documents, key=lambda name: documents[name]["environment"]["started_at"]):
        config_hash = documents[run]["environment"]["config_hash"]
        if config_hash in newest:
            superseded[newest[config_hash]] = run
        newest[config_hash] = run
    return superseded


def _lookup(document: Mapping[str, Any], name: str) -> Any:
    value: Any = document
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _check(name: str, value: Any, expected: Kind) -> None:
    if not expected.fits(value):
        source, _, field = name.partition(".")
        file = {"config": "config.yaml"}.get(source, f"{source}.json")
        raise ResultsError(f"{field} in {file} is {_shown(value)}, expected {expected.text}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


def _runs(documents: Mapping[str, dict[str, Any]], required: Iterable[str]) -> pd.DataFrame:
    frame = pd.json_normalize(list(documents.values())) if documents else pd.DataFrame(columns=list(required))
    frame.index = pd.Index(list(documents), name="run")
    series = frame["environment.kernel"].astype(str).str.extract(r"^(\d+\.\d+)", expand=False)
    return frame.assign(kernel_series=series.fillna(frame["environment.kernel"]))


def _iterations(runs: pd.DataFrame) -> pd.DataFrame:
    """Decode iterations count from 1: iteration 1 reads the prompt's KV for the first time."""
    sources = {"result.decode_s": "decode_s", "result.hit_rate.decode_per_iteration": "hit_rate"}
    frame = runs[list(sources)].explode(list(sources)).rename(columns=sources).dropna().astype(float)
    return frame.assign(iteration=frame.groupby("run").cumcount() + 1).reset_index()

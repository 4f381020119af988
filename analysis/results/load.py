"""A results folder as tidy frames. What cannot be used is left out with one sentence, and nothing else is lost by it.

Column names say where a value comes from: `result.prefill_s` is `prefill_s` of result.json, `config.model.name` is in
config.yaml, `environment.kernel` in environment.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.names import KERNEL, MACHINE, SSD
from analysis.results import kernel_series
from analysis.results.archive import archives, unpacked
from analysis.results.documents import ResultsError, is_io, lookup, read_run
from analysis.results.fields import REQUIRED, REQUIRED_OF_IO
from dualblade.run.run_files import RUNS, UNFINISHED_RUNS

DEFAULT_RESULTS = Path("results")


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
    """Read every finished run of a results folder or an archive of results."""
    documents: dict[str, dict[str, Any]] = {}
    reasons = dict.fromkeys(find_unfinished(results_dir), "it is not finished, its sweep still runs or was stopped")
    folders = find_runs(results_dir)
    for run, folder in folders.items():
        try:
            documents[run] = read_run(folder)
        except ResultsError as error:
            reasons[results_dir / run] = str(error)
    for run, successor in _superseded(documents).items():
        del documents[run]
        reasons[results_dir / run] = f"the same point was measured again in {successor}"
    skipped = tuple(f"{run_dir} is left out: {reason}" for run_dir, reason in reasons.items())
    io_documents = {run: documents.pop(run) for run in list(documents) if is_io(documents[run]["result"])}
    runs = _runs(documents, REQUIRED)
    runs["folder"] = [folders[run] for run in runs.index]
    return Results(runs, _iterations(runs), skipped, _runs(io_documents, REQUIRED_OF_IO))


def find_runs(results_dir: Path) -> dict[str, Path]:
    """Return the folder of each run by its name, <experiment>/<point>/rep-N.

    `results_dir` holds such folders, archives of them, or both; it may also be an archive itself.
    """
    roots = [*map(unpacked, archives(results_dir)), results_dir]
    folders = {path.relative_to(root): path for root in roots for path in root.glob(RUNS)}
    return {name.as_posix(): folders[name] for name in sorted(folders) if folders[name].is_dir()}


def find_unfinished(results_dir: Path) -> list[Path]:
    """Return the hidden folders in which the harness prepares a run before it renames it into place."""
    return sorted(path for path in results_dir.glob(UNFINISHED_RUNS) if path.is_dir())


def optional(runs: pd.DataFrame, column: str) -> pd.Series:
    """Return a column; missing values if older results or other machines do not have it."""
    return runs[column] if column in runs else pd.Series(None, index=runs.index, dtype=object)


def _superseded(documents: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Return older runs of a point and repetition that a later run replaced, each with that later run."""
    newest: dict[tuple[Any, ...], str] = {}
    superseded = {}
    for run in sorted(documents, key=lambda name: documents[name]["environment"]["started_at"]):
        point = _point(documents[run])
        if point in newest:
            superseded[newest[point]] = run
        newest[point] = run
    return superseded


def _point(documents: Mapping[str, Any]) -> tuple[Any, ...]:
    """What was measured, and on which machine, SSD and kernel, as setups are told apart."""
    environment = documents["environment"]
    machine = [lookup(documents, name) for name in (*SSD, *MACHINE)]
    system = kernel_series.series(environment["kernel"]), kernel_series.lru(environment.get("lru_generation"))
    return environment["config_hash"], *machine, *system


def _runs(documents: Mapping[str, dict[str, Any]], required: Iterable[str]) -> pd.DataFrame:
    frame = pd.json_normalize(list(documents.values())) if documents else pd.DataFrame(columns=list(required))
    frame.index = pd.Index(list(documents), name="run")
    return frame.assign(kernel_series=frame[KERNEL].map(kernel_series.series))


def _iterations(runs: pd.DataFrame) -> pd.DataFrame:
    """Decode iterations count from 1: iteration 1 reads the prompt's KV for the first time."""
    sources = {"result.decode_s": "decode_s", "result.hit_rate.decode_per_iteration": "hit_rate"}
    frame = runs[list(sources)].explode(list(sources)).rename(columns=sources).dropna().astype(float)
    return frame.assign(iteration=frame.groupby("run").cumcount() + 1).reset_index()

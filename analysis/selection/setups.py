"""Runs by setup (machine, SSD, kernel, LRU and link), for claims: each setup has a finding of its own.

Latencies and hit rates are judged from runs that finished, had a memory limit and no tracer: a tracer takes time from
the path that it looks at. What a trace shows is judged from runs with the same tracer.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.metrics import run_metrics
from analysis.names import (
    ACCELERATOR,
    CPU,
    DEVICE,
    DISK,
    DISK_MODEL,
    DISK_SERIAL,
    EMULATED,
    LINK,
    MACHINE,
    PACE,
    SSD,
    STORAGE,
    TESTBED,
)
from analysis.results.load import Results, load
from analysis.selection.comparison import OVER_LIMITS
from analysis.selection.filters import untraced

# A configuration can be given another pace or link under its own name.
STORAGE_AND_DEVICE = (STORAGE, PACE, DEVICE, LINK)
SETUP_COLUMNS = (*SSD, *MACHINE, *STORAGE_AND_DEVICE, "lru", "kernel_series")
DISK_COLUMNS = (DISK_MODEL, DISK_SERIAL, DISK)


@dataclass(frozen=True)
class Setup:
    """Runs of one setup, indexed by their folder below results, with a column per metric.

    `io` holds the runs of an I/O path by itself. `stated` says what is emulated or paced; it is empty if all is real.
    """

    name: str
    stated: str
    runs: pd.DataFrame
    io: pd.DataFrame

    def comparable(self, *metrics: str) -> pd.DataFrame:
        """The largest comparable set of untraced runs under a limit that have the metrics."""
        measured = self.runs[["memory_gb", *metrics]].notna().all(axis="columns")
        return OVER_LIMITS.select(untraced(self.runs[measured])).runs


@dataclass(frozen=True)
class Evidence:
    """All setups, the real ones first, then those with most runs."""

    setups: tuple[Setup, ...]
    results: Results
    results_dir: Path


def gather(results_dir: Path) -> Evidence:
    """Load the results and sort the runs by setup."""
    results = run_metrics.with_metrics(load(results_dir))
    io = dataclasses.replace(results, runs=results.io)
    runs = [results.runs, results.io.assign(lru=run_metrics.lru(io))]
    keys = pd.concat([frame.reindex(columns=SETUP_COLUMNS) for frame in runs])
    groups = keys.groupby(list(SETUP_COLUMNS), dropna=False).groups.values() if len(keys) else []
    setups = [_setup(*(frame.loc[frame.index.intersection(group)] for frame in runs)) for group in groups]
    setups.sort(key=lambda setup: (bool(setup.stated), -len(setup.runs), setup.name))
    return Evidence(tuple(setups), results, results_dir)


def is_true(value: Any) -> bool:
    """Whether a field that may be missing is true."""
    return bool(pd.notna(value) and value)


def _setup(runs: pd.DataFrame, io: pd.DataFrame) -> Setup:
    run = (runs if len(runs) else io).iloc[0]
    disk = next((run[name] for name in DISK_COLUMNS if isinstance(run.get(name), str)), "unknown disk")
    parts = {part: run.get(f"config.{part}.name") for part in ("storage", "device")}
    chosen = [f"{part}={name}" for part, name in parts.items() if isinstance(name, str)]
    chosen += [f"Linux {run['kernel_series']}"]
    chosen += [f"CPU {cpu}" for cpu in [run.get(CPU)] if isinstance(cpu, str)]
    chosen += [name for name in [run.get(ACCELERATOR)] if isinstance(name, str)]
    chosen += [f"{run['lru']} LRU"] if run["lru"] != "classic" else []
    name, stated = ", ".join([run[TESTBED], f"disk {disk}", *chosen]), _stated(run)
    return Setup(f"{name} ({stated})" if stated else name, stated, runs, io)


def _stated(run: pd.Series) -> str:
    """Return the emulated or paced parts in words; an empty text if there are none."""
    parts = ["emulated machine and SSD"] if is_true(run.get(EMULATED)) else []
    parts += [f"SSD paced to {run[PACE]:g} GB/s"] if pd.notna(run.get(PACE)) else []
    parts += ["paced link"] if run.get(LINK) == "paced" else []
    return ", ".join(parts)

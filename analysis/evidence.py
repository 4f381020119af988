"""What claims are judged from: the valid runs of each setup (testbed and SSD), comparable among themselves.

A run is valid for latencies and hit rates when it finished, loads, had a memory limit and was not traced: a tracer
takes time from the path it looks at. What a trace shows is judged from traced runs, among runs of the same trace.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis import metrics
from analysis.load import Results, load, optional
from analysis.selection import comparable, split_by_ssd

UNTRACED = "none"


@dataclass(frozen=True)
class Setup:
    """Runs of one testbed and SSD, indexed by their folder below `results_dir`, with a column per metric."""

    testbed: str
    ssd: str
    emulated: bool
    runs: pd.DataFrame
    results_dir: Path

    @property
    def name(self) -> str:
        return f"{self.testbed}, {self.ssd}" + (" (emulated)" if self.emulated else "")

    @functools.cached_property
    def comparable(self) -> pd.DataFrame:
        """The largest set of untraced runs under a limit, with one setting per variant, as the figures take it."""
        return comparable(self.runs[self.runs["memory_gb"].notna() & (trace_name(self.runs) == UNTRACED)]).runs


@dataclass(frozen=True)
class Evidence:
    """All setups, those on real devices first, then those with most runs."""

    setups: tuple[Setup, ...]
    results: Results
    results_dir: Path


def gather(results_dir: Path) -> Evidence:
    """Load the results and sort the runs by setup."""
    results = metrics.with_metrics(load(results_dir))
    runs = results.runs
    setups = [_setup(group, results_dir) for _, group in split_by_ssd(runs)]
    setups.sort(key=lambda setup: (setup.emulated, -len(setup.runs), setup.name))
    return Evidence(tuple(setups), results, results_dir)


def trace_name(runs: pd.DataFrame) -> pd.Series:
    """The tracer that looked at each run. Source: `trace.name` of config.yaml."""
    return optional(runs, "config.trace.name").fillna(UNTRACED).astype(str)


def _setup(runs: pd.DataFrame, results_dir: Path) -> Setup:
    first = runs.iloc[0]
    names = (first.get(f"environment.storage.{key}") for key in ("model", "serial", "name"))
    return Setup(
        testbed=str(first["config.testbed.name"]),
        ssd=next((name for name in names if isinstance(name, str)), "unknown disk"),
        emulated=bool(optional(runs, "environment.emulated").astype("boolean").fillna(False).any()),
        runs=runs,
        results_dir=results_dir,
    )

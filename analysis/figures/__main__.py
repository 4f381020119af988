"""Draw every figure whose data exist; without any results, measure the embedded default sweep first."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from analysis import default_sweep
from analysis.command_errors import MISTAKES, sentence
from analysis.drawing import layout, style
from analysis.figures import (
    access_pattern,
    device_latency_table,
    disk_throughput,
    e2e_latency,
    e2e_latency_guest,
    hit_rate,
    hit_rate_guest,
    io_layers,
    io_paths,
    latency_by_depth,
    lba_pattern,
    lru_generation,
    overlap_model,
    phase_breakdown,
    pipeline,
    thrashing,
    throughput_dynamics,
    wrangling,
    wrangling_records,
)
from analysis.metrics import run_metrics
from analysis.results.archive import archives
from analysis.results.documents import ResultsError
from analysis.results.load import DEFAULT_RESULTS, Results, find_runs, load
from analysis.selection.comparable import Selection
from analysis.unexpected_errors import Bugs
from dualblade.errors import DualBladeError
from traces.errors import TraceError

MAX_SENTENCES = 8
NAME_CHARS = 20


class FigureModule(Protocol):
    """What a module of this package offers; its name is also the experiment's that measures it."""

    def select(self, results: Results) -> Selection:
        """The runs to draw; none where there is nothing to draw."""

    def plot(self, data: pd.DataFrame) -> Figure:
        """Draw them."""

    def caption(self, data: pd.DataFrame) -> str:
        """What the figure shows, and all that a reader needs to judge it."""


FIGURES: Mapping[str, FigureModule] = {
    "thrashing": thrashing,
    "phase_breakdown": phase_breakdown,
    "e2e_latency": e2e_latency,
    "hit_rate": hit_rate,
    "e2e_latency_guest": e2e_latency_guest,
    "hit_rate_guest": hit_rate_guest,
    "lru_generation": lru_generation,
    "io_paths": io_paths,
    "pipeline": pipeline,
    "overlap_model": overlap_model,
    "throughput_dynamics": throughput_dynamics,
    "wrangling": wrangling,
    "wrangling_records": wrangling_records,
    "io_layers": io_layers,
    "device_latency_table": device_latency_table,
    "disk_throughput": disk_throughput,
    "latency_by_depth": latency_by_depth,
    "access_pattern": access_pattern,
    "lba_pattern": lba_pattern,
}
# Numbers to write beside a figure, as CSV and below its caption.
TABLES: Mapping[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "io_layers": io_layers.table,
    "device_latency_table": device_latency_table.table,
    "io_paths": io_paths.table,
    "latency_by_depth": latency_by_depth.table,
}


def main(arguments: list[str] | None = None) -> int:
    """Measure if there is nothing to draw, then draw."""
    parser = argparse.ArgumentParser(prog="python -m analysis.figures", description=__doc__)
    parser.add_argument(
        "--results", type=Path, default=DEFAULT_RESULTS, help="folder with results (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder for figures (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        check_folder(options.results)
        bugs = Bugs()
        results, selections = select(options.results, bugs)
        if not bugs.found and all(selection.runs.empty for selection in selections.values()):
            measure(options.results)
            results, selections = select(options.results, bugs)
        print_some(results.skipped)
        return draw_all(selections, options.results, options.out, bugs)
    except MISTAKES as error:
        print(sentence(error), file=sys.stderr)
        return 1


def measure(results_dir: Path) -> None:
    """Run the default sweep. Points that it could not measure leave the rest to be drawn."""
    if results_dir.is_file():
        raise ResultsError(f"{results_dir} holds nothing to draw; name an archive of results that a sweep wrote")
    print(f"{results_dir} holds nothing to draw yet: measuring the default sweep first", flush=True)
    status = default_sweep.run_default_sweep(results_dir)
    if status:
        print(f"the sweep ended with status {status}; drawing what there is", file=sys.stderr)


def check_folder(results_dir: Path) -> None:
    """Tell a mistyped path from a folder that is still to be filled; only the default one may be missing."""
    if results_dir.exists() and not results_dir.is_dir() and not archives(results_dir):
        raise ResultsError(f"--results {results_dir} is not a folder or an archive; name the folder that a sweep wrote")
    if not results_dir.exists() and results_dir != DEFAULT_RESULTS:
        raise ResultsError(
            f"--results {results_dir} does not exist; name the folder that a sweep wrote, "
            "or create it to have the default sweep measured into it"
        )
    visible = list(results_dir.glob("[!.]*"))
    if visible and not find_runs(results_dir):
        raise ResultsError(
            f"--results {results_dir} holds no <experiment>/<point>/rep-N/ (but {visible[0].name}); "
            "name the folder that a sweep wrote, or an empty one to have the default sweep measured into it"
        )


def select(results_dir: Path, bugs: Bugs) -> tuple[Results, dict[str, Selection]]:
    """Load, and choose the runs of each figure."""
    results, selections = run_metrics.with_metrics(load(results_dir)), {}
    for name, figure in FIGURES.items():
        with bugs.of(name):
            selections[name] = figure.select(results)
    return results, selections


def draw_all(selections: Mapping[str, Selection], results_dir: Path, out_dir: Path, bugs: Bugs) -> int:
    """Draw what has data and say what would measure the rest; status 1 when nothing has any, or there was a bug."""
    for name, selection in selections.items():
        if selection.runs.empty:
            print(f"{name:<{NAME_CHARS}} no results; measure them with: {default_sweep.command(name, results_dir)}")
            continue
        try:
            with bugs.of(name):
                draw(name, selection, out_dir)
        except (DualBladeError, TraceError) as error:
            print(f"{name:<{NAME_CHARS}} not drawn: {error}")
    print_some(bugs.sentences())
    return int(bool(bugs.found) or all(selection.runs.empty for selection in selections.values()))


def draw(name: str, selection: Selection, out_dir: Path) -> None:
    """Draw one figure and say so in one line; then what it does not show."""
    figure, runs = FIGURES[name], selection.runs
    out_dir.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(style.RC):
        files = layout.save(figure.plot(runs), out_dir / name, figure.caption(runs))
    if name in TABLES:
        files.append(layout.save_table(TABLES[name](runs), out_dir / name))
    print(f"{name:<{NAME_CHARS}} {len(runs):>4} runs  {', '.join(str(path) for path in files)}")
    print_some(f"not in {name}: {text}" for text in selection.left_out)
    print_some(f"incomplete {name}: {text}" for text in selection.missing)


def print_some(sentences: Iterable[str]) -> None:
    """Print sentences to stderr, a few of many."""
    sentences = list(sentences)
    print(*sentences[:MAX_SENTENCES], sep="\n", end="\n" if sentences else "", file=sys.stderr)
    if len(sentences) > MAX_SENTENCES:
        print(f"... and {len(sentences) - MAX_SENTENCES} more of this kind", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

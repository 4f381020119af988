"""Paper figure 13: throughput iteration by iteration, and of storage and link within an iteration, Intra and Cross."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.drawing.layout import add_legend, new_panels
from analysis.drawing.style import PIPELINES
from analysis.figures.spec import FigureSpec, overlap_runs
from analysis.names import DIRECT_ITERATIONS, KNOB, LINK_KIND, PIPELINE, REPETITION, STARTED_AT
from analysis.results import kv_io
from analysis.results.load import Results, optional
from analysis.selection.comparison import Comparison, Selection
from analysis.selection.filters import past_the_cache
from analysis.selection.left_out import number_of_runs

EXPERIMENT = "throughput_dynamics"
POINT = [PIPELINE]
OVER_PIPELINES = Comparison((PIPELINE,), free=(KNOB,))
ENGINES = ("paced", "cuda")  # links that take one copy at a time
WITHIN = ("intra", "cross", "overlap_full")
SHOWN_MS = 120
MIN_ITERATIONS = 4  # one after both probes, and a warm one that is not among the last two
STORAGE_COLOR, LINK_COLOR = "#0072B2", "#E69F00"
SUBJECT = (
    "Above: the adaptive pipeline's throughput of Group 2 in each decode iteration: the first is cold, the second "
    "probes Overlap-Intra, the third probes Overlap-Cross, and from the fourth on the faster one is kept. Below: "
    f"storage and link within one warm iteration: its first {SHOWN_MS} ms in steps of 1 ms. Each tensor's bytes are "
    "spread evenly over the time of its transfer, as the engine logged it."
)


def select(results: Results) -> Selection:
    """Runs with all layers past the page cache that differ only in the pipeline, the adaptive one after its choice.

    Runs of the experiment of this name come first: other experiments have such runs, too, at other rates.
    """
    runs = past_the_cache(results.runs)
    runs = runs[optional(runs, LINK_KIND).isin(ENGINES)]
    runs, too_short, _ = _long_enough(runs)
    asked_for = runs[optional(runs, "config.experiment") == EXPERIMENT]
    runs = runs if asked_for.empty else asked_for
    if runs.empty:
        return Selection(runs, too_short)
    chosen = OVER_PIPELINES.select(runs)
    chosen = chosen._replace(left_out=(*too_short, *chosen.left_out))
    newest = chosen.runs.sort_values([REPETITION, STARTED_AT]).drop_duplicates(PIPELINE)
    if not {"adaptive", "intra", "cross"} <= set(newest[PIPELINE]):
        return chosen._replace(runs=runs.head(0))
    return chosen._replace(runs=newest)


def _long_enough(runs: pd.DataFrame) -> Selection:
    """Leave out runs that ended before the choice and a warm iteration after it."""
    long = runs[runs["decode_iterations"] >= MIN_ITERATIONS]
    short = runs.drop(index=long.index)
    sentence = f"{number_of_runs(short)} of fewer than {MIN_ITERATIONS} decode iterations"
    return Selection(long, (sentence,) if len(short) else ())


def plot(data: pd.DataFrame) -> Figure:
    """One panel over the iterations, and one for each strategy within an iteration."""
    runs = data.set_index(PIPELINE)
    within = [name for name in WITHIN if name in runs.index]
    figure, panels = new_panels(n_rows=1 + len(within), height_in=1.6 + 1.0 * len(within), sharex=False)
    _draw_iterations(panels[0, 0], runs.loc["adaptive"])
    for axes, name in zip(panels[1:, 0], within, strict=True):
        _draw_within(axes, name, runs.loc[name, "folder"])
    top = max(axes.get_ylim()[1] for axes in panels[1:, 0])
    for axes in panels[1:, 0]:
        axes.set_ylim(0, top)
    panels[-1, 0].set_xlabel("Time within one decode iteration (ms)")
    add_legend(figure, n_columns=2)
    return figure


def _draw_iterations(axes: Axes, run: pd.Series) -> None:
    """Draw the iterations that the run did. It may have read ahead for one more."""
    table = pd.DataFrame(run[DIRECT_ITERATIONS]).dropna()
    table = table[table["iteration"] <= run["decode_iterations"]]
    axes.plot(table["iteration"], table["gb_per_s"], color="0.6", linewidth=0.7, zorder=2)
    for strategy, rows in table.groupby("strategy", sort=False):
        look = PIPELINES[str(strategy)]
        axes.plot(rows["iteration"], rows["gb_per_s"], label=look.label, clip_on=False, zorder=3, **look.mark)
    axes.set_ylim(0, 1.15 * table["gb_per_s"].max())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("adaptive: Group 2, iteration by iteration", loc="left")
    axes.set_xlabel("Decode iteration")
    axes.set_ylabel("GB/s")


def _draw_within(axes: Axes, name: str, folder: Path) -> None:
    """Draw the beginning of a late iteration. The link serves one copy at a time; so does storage with one reader."""
    operations = kv_io.read(folder)
    reads = operations[(operations["phase"] == "decode") & (operations["op"] == "read")]
    reads = kv_io.one_at_a_time(reads, "link")
    if name == "overlap_full":
        reads = kv_io.one_at_a_time(reads, "storage")
    start_ns = int(reads.loc[reads["iteration"] == reads["iteration"].max() - 2, "storage_start_ns"].min())
    for kind, color, label in (("storage", STORAGE_COLOR, "storage reads"), ("link", LINK_COLOR, "link copies")):
        rates = kv_io.gb_per_s_by_ms(reads, kind, start_ns, SHOWN_MS)
        axes.stairs(rates, np.arange(SHOWN_MS + 1), color=color, label=label, linewidth=0.9, zorder=3)
    axes.set_xlim(0, SHOWN_MS)
    axes.set_title(PIPELINES[name].label, loc="left")
    axes.set_ylabel("GB/s")


FIGURE = FigureSpec(__doc__, select, plot, SUBJECT, overlap_runs(POINT))

"""Paper figure 14: latency of the data-wrangling tasks under one memory limit, relative to the Baseline."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from analysis.drawing.curves import draw_medians
from analysis.drawing.layout import add_legend, new_panels
from analysis.drawing.style import Look, looks
from analysis.figures.spec import FigureSpec
from analysis.names import OVERHEAD_GB, VARIANT, WORKLOAD
from analysis.results.load import Results
from analysis.selection.comparison import Selection
from analysis.selection.tasks import by_size, relative, replayed, title

PANELS = {"task_s": "Whole task / Baseline", "decode_s_per_token": "Decode / Baseline"}
ROW_IN = 0.19
MARK_FONT_PT = 5.5


def select(results: Results) -> Selection:
    """The tasks that were replayed with the Baseline and another variant."""
    chosen = replayed(results.runs)
    variants = set(chosen.runs[VARIANT])
    return chosen if "baseline" in variants and len(variants) > 1 else Selection(results.runs.head(0))


def subject(data: pd.DataFrame) -> str:
    """The first sentences of the caption."""
    limit_gb = data["memory_gb"].iloc[0]
    return (
        f"Latency of data-wrangling tasks at {limit_gb:g} GB, relative to the Baseline in the same repetition: of a "
        "whole batch (prefill and all decode iterations), and of a decoded token. In brackets: KV at the paper's "
        "scale. Shaded: tasks whose KV fits the page cache."
    )


def plot(data: pd.DataFrame) -> Figure:
    """One row for each task, the whole task to the left and decode to the right."""
    tasks = by_size(data)
    figure, panels = new_panels(n_rows=1, n_columns=2, height_in=1.2 + ROW_IN * len(tasks), per_column=2, sharex="all")
    for axes, (metric, label) in zip(panels[0], PANELS.items(), strict=True):
        for name, look in looks(data[VARIANT]).items():
            _draw(axes, data, name, look, metric, tasks)
        _dress(axes, data, tasks, label)
    panels[0, 0].set_xlim(0, 1.05 * max(axes.dataLim.xmax for axes in panels[0]))
    panels[0, 0].set_yticklabels([_label(data, task) for task in tasks])
    panels[0, 0].annotate(
        "KV in GB",
        (0, 1),
        (-3, 4),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        fontsize=MARK_FONT_PT,
    )
    panels[0, 1].set_yticklabels([])
    add_legend(figure)
    return figure


def _draw(axes: Axes, data: pd.DataFrame, variant: str, look: Look, metric: str, tasks: list[str]) -> None:
    if variant == "baseline":
        axes.axvline(1, color=look.color, linewidth=1, label=look.label, zorder=1)
        return
    points = relative(data, variant, metric)
    draw_medians(axes, points, points[WORKLOAD].map(tasks.index), look, sideways=True, linestyle="none")


def _dress(axes: Axes, data: pd.DataFrame, tasks: list[str], label: str) -> None:
    """Order the tasks by their KV, the least on top, and shade those that fit."""
    axes.set_xlabel(label)
    axes.xaxis.set_major_locator(MultipleLocator(0.5))
    axes.set_yticks(range(len(tasks)))
    axes.set_ylim(len(tasks) - 0.5, -0.5)
    fitting = sum(_kv_gb(data, task) <= _budget_gb(data) for task in tasks)
    if fitting:
        axes.axhspan(-0.5, fitting - 0.5, color="0.93", linewidth=0, zorder=0)
        axes.annotate(
            "KV fits",
            (0.03, fitting - 0.55),
            xycoords=("axes fraction", "data"),
            va="bottom",
            fontsize=MARK_FONT_PT,
            color="0.35",
        )


def _label(data: pd.DataFrame, task: str) -> str:
    return f"{title(task)} ({_kv_gb(data, task):.1f})"


def _kv_gb(data: pd.DataFrame, task: str) -> float:
    return float(data.loc[data[WORKLOAD] == task, "working_set_gb"].iloc[0])


def _budget_gb(data: pd.DataFrame) -> float:
    return float((data["memory_gb"] - data[OVERHEAD_GB]).iloc[0])


FIGURE = FigureSpec(__doc__, select, plot, subject)

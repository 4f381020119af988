"""Beside paper figure 14: a real model on records: decode latency and correct answers of every variant."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.drawing.curves import draw_medians
from analysis.drawing.layout import add_legend, new_panels
from analysis.drawing.style import Look, looks
from analysis.figures.spec import FigureSpec
from analysis.metrics.accuracy import accuracy_by_task
from analysis.metrics.stats import summarise
from analysis.names import MODEL, VARIANT, WORKLOAD
from analysis.results.load import Results
from analysis.selection.comparison import Selection
from analysis.selection.tasks import answered, by_size, made_up, title

ROW_IN = 0.24


def select(results: Results) -> Selection:
    """Runs of a model that answered questions about records."""
    return answered(results.runs)


def subject(data: pd.DataFrame) -> str:
    """The first sentences of the caption."""
    given = "; ".join(f"{_row(data, task)} {found}" for task, found in sorted(accuracy_by_task(data).items()))
    origins = " and ".join(sorted({"made-up" if own else "real" for own in made_up(data)}))
    return (
        f"Decode latency per token of {data[MODEL].iloc[0]} on {origins} records, and how many of its "
        "answers are right; alike means that all variants gave the same tokens. A task has two possible answers. Each "
        f"is right for half of the records, if there are enough records. {given}. The model computes on the measured "
        "machine, which takes most of the time: the figure shows answers, not speed."
    )


def plot(data: pd.DataFrame) -> Figure:
    """One row for each task: latency of each variant, and the answers at its end."""
    tasks = by_size(data)
    figure, panels = new_panels(n_rows=1, height_in=1.1 + ROW_IN * len(tasks))
    axes = panels[0, 0]
    for name, look in looks(data[VARIANT]).items():
        _draw(axes, data[data[VARIANT] == name], look, tasks)
    axes.set_xlabel("Decode (s/token)")
    axes.set_xlim(0, 1.08 * axes.dataLim.xmax)
    _name_rows(axes, [_row(data, task) for task in tasks])
    right = axes.twinx()
    right.grid(visible=False)
    found = accuracy_by_task(data)
    _name_rows(right, [str(found[task]) for task in tasks])
    right.annotate("right answers", (1, 1), (3, 4), xycoords="axes fraction", textcoords="offset points")
    add_legend(figure)
    return figure


def _draw(axes: Axes, data: pd.DataFrame, look: Look, tasks: list[str]) -> None:
    points = summarise(data, [WORKLOAD], "decode_s_per_token")
    draw_medians(axes, points, points[WORKLOAD].map(tasks.index), look, sideways=True, linestyle="none")


def _row(data: pd.DataFrame, task: str) -> str:
    """The task in print, and whether its records are made up."""
    return title(task) + (" (made up)" if made_up(data[data[WORKLOAD] == task]).any() else "")


def _name_rows(axes: Axes, names: list[str]) -> None:
    """Label the rows, the first on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


FIGURE = FigureSpec(__doc__, select, plot, subject)

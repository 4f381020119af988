"""Beside paper figure 14: a real model on records, decode latency and its right answers in every variant."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.drawing.caption import note, provenance
from analysis.drawing.layout import add_legend, add_note, new_panels
from analysis.drawing.style import Look, looks
from analysis.drawing.task_rows import draw_marks
from analysis.metrics.stats import summarise
from analysis.names import MODEL, VARIANT, WORKLOAD
from analysis.results.load import Results
from analysis.selection.answers import answers
from analysis.selection.comparable import Selection
from analysis.selection.tasks import answered, by_size, made_up, title

ROW_IN = 0.24


def select(results: Results) -> Selection:
    """All that answered questions about records."""
    return answered(results.runs)


def caption(data: pd.DataFrame) -> str:
    """The subject and where the runs come from."""
    given = "; ".join(f"{_row(data, task)} {found}" for task, found in sorted(answers(data).items()))
    origins = " and ".join(sorted({"made-up" if own else "real" for own in made_up(data)}))
    subject = (
        f"Decode latency per token of {data[MODEL].iloc[0]} on {origins} records, and how many of its "
        "answers are right; alike means that all variants gave the same tokens. A task has two possible answers, each "
        f"of them right for half of the records as far as there are so many. {given}. The model computes on the "
        "machine itself, which takes most of the time: the figure is about answers, not about speed."
    )
    return provenance(subject, data)


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
    found = answers(data)
    _name_rows(right, [str(found[task]) for task in tasks])
    right.annotate("right answers", (1, 1), (3, 4), xycoords="axes fraction", textcoords="offset points")
    add_legend(figure)
    add_note(figure, note(data))
    return figure


def _draw(axes: Axes, data: pd.DataFrame, look: Look, tasks: list[str]) -> None:
    draw_marks(axes, summarise(data, [WORKLOAD], "decode_s_per_token"), look, tasks)


def _row(data: pd.DataFrame, task: str) -> str:
    """The task in print, and whether its records are made up."""
    return title(task) + (" (made up)" if made_up(data[data[WORKLOAD] == task]).any() else "")


def _name_rows(axes: Axes, names: list[str]) -> None:
    """The first on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)

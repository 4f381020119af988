"""Medians as marks on the rows of tasks, one row each."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from analysis.drawing.style import Look
from analysis.names import WORKLOAD


def draw_marks(axes: Axes, points: pd.DataFrame, look: Look, tasks: list[str]) -> None:
    """Medians of `summarise` on the row of their task, with their intervals where there is more than one run."""
    below, above = points["median"] - points["low"], points["high"] - points["median"]
    axes.errorbar(
        points["median"],
        points[WORKLOAD].map(tasks.index),
        xerr=[below, above] if (points["runs"] > 1).any() else None,
        label=look.label,
        elinewidth=0.7,
        zorder=3,
        **look.line | {"linestyle": "none"},
    )

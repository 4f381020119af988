"""Paper figure 7: hit rate of decode reads of the variants over memory limits, with the Baseline's cliff."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis.drawing.curves import draw_curves, finish_memory_axis, hit_rate_axis
from analysis.drawing.layout import add_legend, new_panels
from analysis.figures.spec import FigureSpec
from analysis.results.load import Results
from analysis.selection.comparison import Selection, comparable_by_ssd
from analysis.selection.filters import limited, one_testbed, split_by_ssd, warm

SUBJECT = (
    "Hit rate of decode reads of the variants over memory limits. Dashed line: the limit from which the whole KV fits."
)


def select(results: Results) -> Selection:
    """The largest comparable set of each SSD of one testbed."""
    return comparable_by_ssd(one_testbed(warm(limited(results.runs))))


def plot(data: pd.DataFrame) -> Figure:
    """One panel per SSD, one curve per variant."""
    ssds = split_by_ssd(data)
    figure, panels = new_panels(n_rows=1, n_columns=len(ssds), height_in=2.4)
    for axes, (name, runs) in zip(panels[0], ssds, strict=True):
        draw_curves(axes, runs, "decode_hit_rate")
        hit_rate_axis(axes)
        finish_memory_axis([axes], runs, mark_height=0.5)
        if len(ssds) > 1:
            axes.set_title(name)
    add_legend(figure, n_columns=2 * len(ssds))
    return figure


FIGURE = FigureSpec(__doc__, select, plot, SUBJECT)

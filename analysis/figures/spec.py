"""FigureSpec: the runs that a figure shows, how it is drawn, and its caption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from analysis.drawing import caption
from analysis.drawing.layout import add_note
from analysis.results.load import Results
from analysis.selection.comparison import Selection

Text = Callable[[pd.DataFrame], str]


class Origin(NamedTuple):
    """How a figure says where its numbers come from: a note inside the image, and a caption after its subject."""

    note: Text
    caption: Callable[[str, pd.DataFrame], str]


RUNS = Origin(caption.note, caption.provenance)
TRACES = Origin(caption.trace_note, caption.trace_provenance)
TWO_TRACES = Origin(caption.note, caption.trace_provenance)
IO_RUNS = Origin(caption.io_note, caption.io_provenance)


def overlap_runs(point: list[str], note: str = "") -> Origin:
    """Runs that differ in how storage and link overlap; `point`: the columns that tell the points apart."""
    return Origin(
        lambda data: note + caption.overlap_note(data, point),
        lambda subject, data: caption.overlap_provenance(subject, data, point),
    )


@dataclass(frozen=True)
class FigureSpec:
    """One figure. Its name in the registry is also the name of the experiment that measures it.

    `select` returns no runs if there is nothing to draw. `subject` begins the caption. `table` holds the numbers that
    are written beside the figure as CSV and below its caption.
    """

    title: str
    select: Callable[[Results], Selection]
    plot: Callable[[pd.DataFrame], Figure]
    subject: str | Text
    origin: Origin = RUNS
    table: Callable[[pd.DataFrame], pd.DataFrame] | None = None

    def draw(self, data: pd.DataFrame) -> Figure:
        """Draw the runs, with the note on their origin."""
        figure = self.plot(data)
        add_note(figure, self.origin.note(data))
        return figure

    def caption(self, data: pd.DataFrame) -> str:
        """Return the caption: the subject of the figure, and the origin of its numbers."""
        subject = self.subject if isinstance(self.subject, str) else self.subject(data)
        return self.origin.caption(subject, data)

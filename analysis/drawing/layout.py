"""Empty panels of a column's width, the legend above, the note below, and the files."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from analysis.drawing.style import COLUMN_WIDTH_IN, PNG_DPI

Share = bool | Literal["none", "all", "row", "col"]

NOTE_FONT_PT = 5
NOTE_CHARS_PER_IN = 27
NOTE_LINE_IN = 1.3 * NOTE_FONT_PT / 72


def new_panels(
    n_rows: int,
    n_columns: int = 1,
    height_in: float = 2.0,
    *,
    per_column: int = 1,
    sharex: Share = True,
    sharey: Share = False,
) -> tuple[Figure, np.ndarray]:
    """Panels [n_rows, n_columns], by default sharing the x axis; `per_column` side by side fill the paper's column.

    A figure is never narrower than that column: legend and note need it.
    """
    width_in = COLUMN_WIDTH_IN * max(1.0, n_columns / per_column)
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, sharex=sharex, sharey=sharey, squeeze=False)


def add_legend(figure: Figure, n_columns: int = 2) -> None:
    """One legend for all panels, above them, so that it never covers data."""
    entries = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(entries.values()), list(entries), loc="outside upper center", ncols=n_columns)


def add_note(figure: Figure, text: str) -> None:
    """Write the note below the finished panels, which become smaller for it."""
    figure.align_ylabels()
    width_in, height_in = figure.get_size_inches()
    lines = textwrap.wrap(text, int(width_in * NOTE_CHARS_PER_IN))
    note_share = (len(lines) * NOTE_LINE_IN + 0.05) / height_in
    figure.set_layout_engine("constrained", rect=(0, note_share, 1, 1 - note_share))
    figure.text(0.01, 0.01, "\n".join(lines), fontsize=NOTE_FONT_PT, color="0.35", va="bottom", linespacing=1.2)


def plain_log_ticks(axis: Axis) -> None:
    """Ticks of a log axis at 1, 2 and 5 of each decade, written as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def save(figure: Figure, stem: Path, caption: str) -> list[Path]:
    """Write STEM.pdf, STEM.png, and the caption as STEM.md and inside both images."""
    outputs = [stem.with_suffix(".pdf"), stem.with_suffix(".png"), stem.with_suffix(".md")]
    figure.savefig(outputs[0], metadata={"Title": stem.name, "Subject": caption})
    figure.savefig(outputs[1], dpi=PNG_DPI, metadata={"Title": stem.name, "Description": caption})
    outputs[2].write_text(f"{caption}\n", encoding="utf-8")
    return outputs


def save_table(table: pd.DataFrame, stem: Path) -> Path:
    """Write the numbers of a figure as STEM.csv, and as a table below the caption in STEM.md."""
    path = stem.with_suffix(".csv")
    table.to_csv(path, index=False)
    shown = table.map(lambda value: f"{value:.4g}" if isinstance(value, float) else str(value))
    rows = [list(shown.columns), ["---"] * len(shown.columns), *shown.to_numpy().tolist()]
    with open(stem.with_suffix(".md"), "a", encoding="utf-8") as text:
        text.write("\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n")
    return path

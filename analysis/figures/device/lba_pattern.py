"""Paper figure 10: the order in which the device gets the addresses of a layer's tensors, Baseline and DUAL-BLADE."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from analysis.drawing.layout import add_legend, new_panels
from analysis.drawing.style import VARIANTS
from analysis.figures.spec import TWO_TRACES, FigureSpec
from analysis.metrics.addresses import MIB, with_places
from analysis.metrics.device_metrics import kb_per_run
from analysis.names import EMULATED, REPETITION, VARIANT
from analysis.results.device_io import DECODE_READ, PREFILL_WRITE, RequestKind, load_device_io
from analysis.results.load import Results, optional
from analysis.selection.comparison import Selection
from analysis.selection.filters import split_by_ssd
from analysis.selection.left_out import number_of_runs
from analysis.selection.traced import traced

ROWS = (PREFILL_WRITE, DECODE_READ)
SIDES = ("baseline", "dual_blade")
LAYERS = 2  # shown: the last ones, which DUAL-BLADE moves by the direct path at a tight limit
KINDS = {"k": ("K", "#0072B2"), "v": ("V", "#E69F00")}
JUMP = "0.75"
KB_PER_MB = 1000


def select(results: Results) -> Selection:
    """One traced run of each of the two variants on one testbed and SSD, a real SSD first."""
    return pair(results)


def pair(results: Results, preferred: Callable[[pd.DataFrame], bool] = lambda runs: False) -> Selection:
    """One traced run of each of the two variants: of an SSD with both, `preferred` runs first, then a real SSD."""
    chosen = traced(results)
    groups = split_by_ssd(chosen.runs[chosen.runs[VARIANT].isin(SIDES)])
    if not groups:
        return chosen._replace(runs=chosen.runs.head(0))
    (_, runs), *others = sorted(groups, key=lambda group: _rank(group[1], preferred), reverse=True)
    first = runs.sort_values([VARIANT, REPETITION]).drop_duplicates(VARIANT)
    return Selection(first, (*chosen.left_out, *(_describe(title, group) for title, group in others)))


def _rank(runs: pd.DataFrame, preferred: Callable[[pd.DataFrame], bool]) -> tuple[int, bool, bool]:
    real = not optional(runs, EMULATED).eq(True).any()
    return runs[VARIANT].nunique(), preferred(runs), real


def _describe(title: str, runs: pd.DataFrame) -> str:
    return f"{number_of_runs(runs)} of {', '.join(sorted(set(runs[VARIANT])))} on {title}"


def subject(data: pd.DataFrame) -> str:
    """The first sentences of the caption."""
    return (
        f"Commands of the last {LAYERS} layers in the order in which the device got them: each line is one command "
        "and spans its addresses (gaps between tensors are closed). Grey: jumps from the end of one command to the "
        "beginning of the next. Above each panel: mean length of a sequential run over all layers, in the order of "
        "issue to the device. Decode: the last iteration."
    )


def plot(data: pd.DataFrame) -> Figure:
    """Two rows (prefill writes, decode reads) by one column per variant."""
    figure, panels = new_panels(len(ROWS), len(data), height_in=3.5, per_column=len(data), sharex="row")
    for column, (_, run) in zip(panels.T, data.iterrows(), strict=True):
        commands = load_device_io(run["folder"])
        for axes, kind in zip(column, ROWS, strict=True):
            of_kind = commands.commands_of(kind)
            _draw(axes, with_places(window(of_kind, kind)))
            axes.set_title(_run_length(kb_per_run(of_kind)))
        column[0].set_title(f"{VARIANTS[run[VARIANT]].label}\n{column[0].get_title()}")
        column[-1].set_xlabel("Issued so far (MiB)")
    for axes, kind in zip(panels[:, 0], ROWS, strict=True):
        axes.set_ylabel(f"{kind.label}:\ndevice address (MiB)")
    add_legend(figure, n_columns=3)
    return figure


def window(commands: pd.DataFrame, kind: RequestKind) -> pd.DataFrame:
    """The commands of the last layers; in decode, those of the last iteration."""
    last = commands[commands["layer"] > commands["layer"].max() - LAYERS]
    if kind.phase == "decode" and len(last):
        last = last[last["iteration"] == last["iteration"].max()]
    return last


def _draw(axes: Axes, commands: pd.DataFrame) -> None:
    """Draw a line per command from its first to its last byte, and the jumps between commands."""
    x, y, size = commands["issued_mib"], commands["place_mib"], commands["bytes"] / MIB
    ends = pd.DataFrame({"x0": x + size, "y0": y + size, "x1": x.shift(-1), "y1": y.shift(-1)}).dropna()
    jumps = ends[(ends["y1"] - ends["y0"]).abs() > 0]
    axes.add_collection(
        LineCollection(segments(jumps["x0"], jumps["y0"], jumps["x1"], jumps["y1"]), colors=JUMP, linewidths=0.25)
    )
    for kind, (label, color) in KINDS.items():
        of = commands["kind"] == kind
        lines = segments(x[of], y[of], (x + size)[of], (y + size)[of])
        axes.add_collection(LineCollection(lines, colors=color, linewidths=1.6, label=label))
    axes.autoscale_view()
    axes.set_xlim(0)


def segments(x0: pd.Series, y0: pd.Series, x1: pd.Series, y1: pd.Series) -> list[list[tuple[float, float]]]:
    """Lines from (x0, y0) to (x1, y1) for a LineCollection."""
    return [[(a, b), (c, d)] for a, b, c, d in zip(x0, y0, x1, y1, strict=True)]


def _run_length(kb: float) -> str:
    return f"{kb:.0f} KB per run" if kb < KB_PER_MB else f"{kb / KB_PER_MB:.1f} MB per run"


FIGURE = FigureSpec(__doc__, select, plot, subject, TWO_TRACES)

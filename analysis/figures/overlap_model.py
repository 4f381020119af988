"""The strategies beside their model: time of a layer over the ratio of link to storage rate."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from analysis.drawing.curves import draw_medians
from analysis.drawing.layout import add_legend, new_panels
from analysis.drawing.style import PIPELINES, Look
from analysis.figures.spec import FigureSpec, overlap_runs
from analysis.metrics import overlap_model
from analysis.metrics.paired_change import changes
from analysis.metrics.stats import summarise
from analysis.names import GPU, LINK_KIND, LINK_RATE, LINK_RATIO, PACE, PACE_NAME, PIPELINE, STORAGE
from analysis.results import kv_io
from analysis.results.load import Results, optional
from analysis.selection.comparison import Selection, by_storage, curves_by_storage
from analysis.selection.filters import past_the_cache, warm

OVER_LINKS = by_storage("link", free=("config.device.pace.gb_per_s", "config.device.pace.storage_"))
POINT = [STORAGE, "link", PIPELINE]
SHORT = {"intra": "Intra", "cross": "Cross", "overlap_full": "overlap_full"}
MARGIN = 1.1
GAINS = (("cross", "intra"), ("overlap_full", "cross"))
SUBJECT = (
    "Decode time per layer of each strategy, in units of the time that the storage alone needs (2b/S), over the ratio "
    "of the link's rate D to the storage's rate S. Lines: model; marks: measured. Below: how much shorter "
    "Overlap-Cross is than Overlap-Intra, and overlap_full than Overlap-Cross. All layers bypass the page cache, and "
    "nothing is computed. S is the rate that the link is a multiple of; otherwise the stated rate of a paced storage, "
    "or the rate of the Overlap-Intra runs while they read."
)


def select(results: Results) -> Selection:
    """Runs of the direct path alone, over a paced link and without compute, that differ only in POINT."""
    runs = warm(past_the_cache(results.runs))
    runs = runs[(optional(runs, LINK_KIND) == "paced") & optional(runs, GPU).isna()]
    return curves_by_storage(OVER_LINKS.select(runs.assign(link=_stated_link(runs))), _is_a_curve)


def _stated_link(runs: pd.DataFrame) -> pd.Series:
    """The link as it was asked for: its rate, or its ratio to the storage's."""
    ratios = optional(runs, LINK_RATIO).map("{:g}x SSD".format, na_action="ignore").astype(object)
    return ratios.fillna(optional(runs, LINK_RATE).map("{:g} GB/s".format))


def _is_a_curve(runs: pd.DataFrame) -> bool:
    return runs["link"].nunique() > 1 and "intra" in set(runs[PIPELINE])


def with_ratio(data: pd.DataFrame) -> pd.DataFrame:
    """The runs with their storage's rate `s` (GB/s), `ratio` (D/S) and `units`: a layer's time over 2b/S."""
    s = pd.concat([storage_gb_per_s(runs) for _, runs in data.groupby(STORAGE)])
    ratio = optional(data, LINK_RATIO).fillna(data[LINK_RATE] / s).astype(float)
    read_gb = data["result.bytes.decode.asked_read"] / data["decode_iterations"] / 1e9
    return data.join(pd.DataFrame({"s": s, "ratio": ratio, "units": data["decode_s_per_token"] * s / read_gb}))


def storage_gb_per_s(runs: pd.DataFrame) -> pd.Series:
    """The rate that a run's link is a multiple of; else the stated rate of a paced storage; else the measured rate."""
    of_link = optional(runs, "result.link.storage_gb_per_s").where(optional(runs, LINK_RATIO).notna())
    known = of_link.fillna(optional(runs, PACE)).astype(float)
    return known.fillna(_intra_gb_per_s(runs)) if known.isna().any() else known


def _intra_gb_per_s(runs: pd.DataFrame) -> float:
    """Read rate of the Overlap-Intra runs over the fastest link, while any read was under way."""
    intra = runs[runs[PIPELINE] == "intra"]
    fastest = intra[intra[LINK_RATE] == intra[LINK_RATE].max()]
    return float(np.median([kv_io.read_gb_per_s(kv_io.read(folder)) for folder in fastest["folder"]]))


def plot(data: pd.DataFrame) -> Figure:
    """Two rows (time, gains) by one column per storage."""
    data = with_ratio(data)
    storages = list(data.groupby(STORAGE))
    figure, panels = new_panels(n_rows=2, n_columns=len(storages), height_in=3.4, per_column=max(1, len(storages)))
    for (time, gain), (_, runs) in zip(panels.T, storages, strict=True):
        ratios = np.geomspace(0.8 * runs["ratio"].min(), 1.25 * runs["ratio"].max(), 100)
        for name, look in _looks(runs).items():
            model = overlap_model.LAYER_S.get(name)
            if model:
                time.plot(ratios, [model(0.5, 1, ratio) for ratio in ratios], color=look.color, linewidth=0.7, zorder=2)
            _mark(time, summarise(runs[runs[PIPELINE] == name], ["ratio"], "units"), look)
        for name, over in GAINS:
            _draw_gain(gain, runs, name, over, ratios)
        _dress(time, gain, runs)
    panels[0, 0].set_ylabel("Time / (2b/S)")
    panels[1, 0].set_ylabel("Shorter by")
    add_legend(figure, n_columns=3)
    return figure


def _draw_gain(axes: Axes, runs: pd.DataFrame, name: str, over: str, ratios: np.ndarray) -> None:
    pairs = changes(runs, PIPELINE, name, over, "decode_s_per_token", ["ratio"])
    if pairs.empty:
        return
    look = PIPELINES[name]._replace(label=f"{SHORT.get(name, name)} vs {SHORT.get(over, over)}")
    axes.plot(ratios, [overlap_model.gain(name, over, r) for r in ratios], color=look.color, linewidth=0.7, zorder=2)
    _mark(axes, summarise(pairs.assign(gain=-pairs["change"]), ["ratio"], "gain"), look)


def _mark(axes: Axes, points: pd.DataFrame, look: Look) -> None:
    draw_medians(axes, points, points["ratio"], look, linestyle="none")


def _dress(time: Axes, gain: Axes, runs: pd.DataFrame) -> None:
    paced = optional(runs, PACE_NAME).notna().any()
    rates = sorted({f"{rate:.2g}" for rate in (runs["s"].min(), runs["s"].max())}, key=float)
    rate = f"S = {' to '.join(rates)} GB/s"
    time.set_title(f"paced storage (emulated)\n{rate}" if paced else f"this host's disk\n{rate}")
    time.set_ylim(0)
    gain.set_ylim(min(0, MARGIN * gain.dataLim.ymin))
    gain.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    gain.set_xscale("log")
    gain.xaxis.set_major_locator(FixedLocator(sorted(runs["ratio"].unique())))
    gain.xaxis.set_minor_locator(NullLocator())
    gain.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.2g}"))
    gain.set_xlabel("Link / storage (D/S)")


def _looks(runs: pd.DataFrame) -> dict[str, Look]:
    present = [name for name in PIPELINES if name in set(runs[PIPELINE])]
    return {name: PIPELINES[name]._replace(label=SHORT.get(name, name)) for name in present}


FIGURE = FigureSpec(__doc__, select, plot, SUBJECT, overlap_runs(POINT, "Lines: model; marks: measured. "))

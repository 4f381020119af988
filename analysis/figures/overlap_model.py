"""The strategies beside their model: time of a layer over the ratio of link to storage rate."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from analysis.drawing.caption import overlap_note, overlap_provenance
from analysis.drawing.layout import add_legend, add_note, new_panels
from analysis.drawing.style import PIPELINES, Look
from analysis.metrics import overlap_model
from analysis.metrics.paired_change import changes
from analysis.metrics.stats import summarise
from analysis.names import GPU, LINK_KIND, LINK_RATE, LINK_RATIO, PACE, PACE_NAME, PIPELINE, STORAGE
from analysis.results import kv_io
from analysis.results.load import Results, optional
from analysis.selection.comparable import Selection, largest, warm
from analysis.selection.pipelines import OF_A_STORAGE, curves_by_storage, equal_columns, past_the_cache

LINK_SETTINGS = ("config.device.pace.gb_per_s", "config.device.pace.storage_")
POINT = [STORAGE, "link", PIPELINE]
SHORT = {"intra": "Intra", "cross": "Cross", "overlap_full": "overlap_full"}
MARGIN = 1.1
GAINS = (("cross", "intra"), ("overlap_full", "cross"))
SUBJECT = (
    "Decode time per layer under each strategy, in units of what the storage alone needs (2b/S), over the ratio "
    "of the link's rate D to the storage's S; lines are the model, marks are measured. Below, how much shorter "
    "Overlap-Cross is than Overlap-Intra, and overlap_full than Overlap-Cross. All layers go past the page cache "
    "and nothing is computed. S is the rate that the link was set in proportion to; else the stated rate of a paced "
    "storage, or the rate of the Overlap-Intra runs while they read."
)


def select(results: Results) -> Selection:
    """Runs of the direct path alone over a paced link without compute; the largest set that differs in POINT alone."""
    runs = warm(past_the_cache(results.runs))
    runs = runs[(optional(runs, LINK_KIND) == "paced") & optional(runs, GPU).isna()]
    if runs.empty:
        return Selection(runs)
    runs = runs.assign(link=_stated_link(runs))
    chosen = largest(runs, equal_columns(runs, but=(OF_A_STORAGE, *LINK_SETTINGS)), (PIPELINE, STORAGE, "link"))
    return curves_by_storage(chosen, (PIPELINE, "link"), _is_a_curve)


def _stated_link(runs: pd.DataFrame) -> pd.Series:
    """The link as it was asked for: its rate, or its ratio to the storage's."""
    ratios = optional(runs, LINK_RATIO).map("{:g}x SSD".format, na_action="ignore").astype(object)
    return ratios.fillna(runs[LINK_RATE].map("{:g} GB/s".format))


def _is_a_curve(runs: pd.DataFrame) -> bool:
    return runs["link"].nunique() > 1 and "intra" in set(runs[PIPELINE])


def caption(data: pd.DataFrame) -> str:
    """The subject and where the runs come from."""
    return overlap_provenance(SUBJECT, data, POINT)


def with_ratio(data: pd.DataFrame) -> pd.DataFrame:
    """The runs with their storage's rate `s` (GB/s), `ratio` (D/S) and `units`: a layer's time over 2b/S."""
    s = pd.concat([storage_gb_per_s(runs) for _, runs in data.groupby(STORAGE)])
    ratio = optional(data, LINK_RATIO).fillna(data[LINK_RATE] / s).astype(float)
    read_gb = data["result.bytes.decode.asked_read"] / data["decode_iterations"] / 1e9
    return data.join(pd.DataFrame({"s": s, "ratio": ratio, "units": data["decode_s_per_token"] * s / read_gb}))


def storage_gb_per_s(runs: pd.DataFrame) -> pd.Series:
    """The rate that a run's link is a multiple of, else the stated rate of a paced storage, else what was measured."""
    of_link = optional(runs, "result.link.storage_gb_per_s").where(optional(runs, LINK_RATIO).notna())
    known = of_link.fillna(optional(runs, PACE)).astype(float)
    return known.fillna(_intra_gb_per_s(runs)) if known.isna().any() else known


def _intra_gb_per_s(runs: pd.DataFrame) -> float:
    """What the Overlap-Intra runs over the fastest link read while any read was under way."""
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
    add_note(figure, "Lines: model; marks: measured. " + overlap_note(data, POINT))
    return figure


def _draw_gain(axes: Axes, runs: pd.DataFrame, name: str, over: str, ratios: np.ndarray) -> None:
    pairs = changes(runs, PIPELINE, name, over, "decode_s_per_token", ["ratio"])
    if pairs.empty:
        return
    look = PIPELINES[name]._replace(label=f"{SHORT.get(name, name)} vs {SHORT.get(over, over)}")
    axes.plot(ratios, [overlap_model.gain(name, over, r) for r in ratios], color=look.color, linewidth=0.7, zorder=2)
    _mark(axes, summarise(pairs.assign(gain=-pairs["change"]), ["ratio"], "gain"), look)


def _mark(axes: Axes, points: pd.DataFrame, look: Look) -> None:
    below, above = points["median"] - points["low"], points["high"] - points["median"]
    bars = [below, above] if (points["runs"] > 1).any() else None
    style = look.line | {"linestyle": "none"}
    axes.errorbar(points["ratio"], points["median"], yerr=bars, label=look.label, elinewidth=0.7, zorder=3, **style)


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

"""Residency: the path of each layer over the limits, and the hits of each layer and iteration of a run."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from analysis.drawing.style import VARIANTS
from analysis.names import STARTED_AT, VARIANT
from analysis.results import kv_io
from analysis.selection.filters import limited
from analysis.views.one_run import describe

# Okabe and Ito's palette, as the variants' looks; a path of another name is grey.
PATHS = {
    "page_cache": ("page cache", "#E69F00"),
    "page_cache_evict": ("page cache, evicted", "#F0E442"),
    "direct": ("direct", "#0072B2"),
}
OTHER = ("other", "#999999")


def layer_paths(runs: pd.DataFrame) -> Figure:
    """Limits across, layers up, one panel per variant: the path that the plan gave to each layer."""
    runs = limited(runs)
    variants = [name for name in VARIANTS if name in set(runs[VARIANT])]
    figure = Figure(figsize=(2.2 * len(variants) + 0.6, 2.8), layout="constrained")
    panels = figure.subplots(1, len(variants), sharey=True, squeeze=False)[0]
    codes = [*PATHS]
    for axes, name in zip(panels, variants, strict=True):
        mine = runs[runs[VARIANT] == name].sort_values(STARTED_AT)
        one_each = mine.drop_duplicates("memory_gb", keep="last").sort_values("memory_gb")
        image = np.array([[_code(path, codes) for path in plan] for plan in one_each["result.plan.layers"]]).T
        colors = ListedColormap([color for _, color in (*PATHS.values(), OTHER)])
        axes.imshow(image, cmap=colors, vmin=0, vmax=len(codes), aspect="auto", origin="lower", interpolation="none")
        axes.set_xticks(range(len(one_each)), [f"{gb:g}" for gb in one_each["memory_gb"]], rotation=90)
        axes.set_title(VARIANTS[name].label)
        axes.set_xlabel("Memory limit (GB)")
        axes.grid(False)
    panels[0].set_ylabel("Layer")
    handles = [Patch(color=color, label=label) for label, color in PATHS.values()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def hits_by_layer(run: pd.Series) -> Figure:
    """Layers across, decode iterations down: the share of each layer's bytes that came from memory."""
    rates = kv_io.hit_rate_by_layer(kv_io.read(run["folder"])).dropna()  # what is read ahead of a next step is no step
    figure = Figure(figsize=(6, 1.2 + 0.18 * len(rates)), layout="constrained")
    axes = figure.subplots()
    edges = (rates.columns.min() - 0.5, rates.columns.max() + 0.5, rates.index.max() + 0.5, rates.index.min() - 0.5)
    image = axes.imshow(rates, vmin=0, vmax=1, cmap="cividis", aspect="auto", interpolation="none", extent=edges)
    axes.set(xlabel="Layer", ylabel="Decode iteration", title=describe(run))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(False)
    figure.colorbar(image, label="Hit rate", ticks=[0, 0.5, 1], format="{x:.0%}")
    return figure


def _code(path: str, codes: list[str]) -> int:
    return codes.index(path) if path in codes else len(codes)

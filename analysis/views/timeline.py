"""One decode iteration as a timeline: what each copy thread did when, on storage and on the link, and the compute."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.results import kv_io
from analysis.results.documents import ResultsError
from analysis.views.one_run import describe

STORAGE_READ, STORAGE_WRITE, LINK, COMPUTE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
LANE = 0.8
LEGEND = {"storage read": STORAGE_READ, "storage write": STORAGE_WRITE, "link": LINK, "compute (stated)": COMPUTE}


def decode_timeline(run: pd.Series, iteration: int, layers: range | None = None) -> Figure:
    """Lanes for compute and, per copy thread, storage and link; milliseconds since the iteration's first transfer.

    Raises:
        ResultsError: the run has no such iteration.
    """
    operations = kv_io.read(run["folder"])
    chosen = operations[(operations["phase"] == "decode") & (operations["iteration"] == iteration)]
    if layers is not None:
        chosen = chosen[chosen["layer"].isin(layers)]
    if chosen.empty:
        last = operations["iteration"].max()
        raise ResultsError(f"{run.name} has no transfer of these layers in decode iteration {iteration} of {last}")
    zero_ns = chosen[["storage_start_ns", "link_start_ns"]].min().min()
    threads = sorted(chosen["thread"].unique())
    figure = Figure(figsize=(9, 0.9 + 0.55 * (len(threads) + 1)), layout="constrained")
    axes = figure.subplots()
    _draw_compute(axes, chosen, float(run.get("result.compute.decode_layer_s") or 0), zero_ns)
    for turn, thread in enumerate(threads, start=1):
        _draw_thread(axes, chosen[chosen["thread"] == thread], -turn, zero_ns)
    axes.set_yticks(
        [-turn for turn in range(len(threads) + 1)], ["compute", *(f"thread {thread}" for thread in threads)]
    )
    axes.set(xlabel="ms", title=f"{describe(run)}: decode iteration {iteration}")
    axes.margins(x=0.01)
    axes.grid(axis="y", visible=False)
    handles = [Patch(color=color, label=label) for label, color in LEGEND.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def compute_spans(operations: pd.DataFrame, layer_s: float) -> pd.DataFrame:
    """When each layer computed: from its last tensor's arrival on, for the run's stated time; columns start_ns, end_ns.

    A replay passes exactly this time there; a model's own compute is not logged.
    """
    arrived_ns = operations[operations["op"] == "read"].groupby("layer")["link_end_ns"].max()
    return pd.DataFrame({"start_ns": arrived_ns, "end_ns": arrived_ns + round(layer_s * 1e9)})


def _draw_compute(axes: Axes, operations: pd.DataFrame, layer_s: float, zero_ns: int) -> None:
    spans = compute_spans(operations, layer_s)
    _bars(axes, spans["start_ns"], spans["end_ns"], zero_ns, (-LANE / 2, LANE), COMPUTE)


def _draw_thread(axes: Axes, operations: pd.DataFrame, level: float, zero_ns: int) -> None:
    """Storage in the upper half of the lane, the link in the lower."""
    for op, color in (("read", STORAGE_READ), ("write", STORAGE_WRITE)):
        mine = operations[operations["op"] == op]
        upper = (level, LANE / 2)
        _bars(axes, mine["storage_start_ns"], mine["storage_end_ns"], zero_ns, upper, color)
    lower = (level - LANE / 2, LANE / 2)
    _bars(axes, operations["link_start_ns"], operations["link_end_ns"], zero_ns, lower, LINK)


def _bars(
    axes: Axes, start_ns: pd.Series, end_ns: pd.Series, zero_ns: int, lane: tuple[float, float], color: str
) -> None:
    spans = list(zip((start_ns - zero_ns) / 1e6, (end_ns - start_ns) / 1e6, strict=True))
    axes.broken_barh(spans, lane, facecolors=color, linewidth=0)

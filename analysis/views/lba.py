"""Commands of a traced run over time: their bytes in the tensor beside their bytes on the device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure

from analysis.results.documents import ResultsError
from analysis.views.one_run import describe
from dualblade.run.run_files import RunFile
from traces.schema import read

MIB = 1 << 20
COLUMNS = (
    "queue",
    "op",
    "offset_bytes",
    "bytes",
    "issue_ns",
    "complete_ns",
    "layer",
    "kind",
    "tensor_offset_bytes",
    "phase",
    "iteration",
)
THIN_PT = 0.8
HOLE_BYTES = 4 * MIB


def commands(
    run: pd.Series,
    phase: str = "decode",
    iteration: int | None = None,
    op: str = "read",
    layers: Sequence[int] | None = None,
    queues: Sequence[int] | None = None,
) -> pd.DataFrame:
    """The commands of a traced run that belong to a phase, iteration, layers and queues (None: all of them).

    Raises:
        TraceError: the run has no trace that can be read.
        ResultsError: the trace is not valid, or holds no such command.
    """
    table, info = read(run["folder"] / RunFile.DEVICE_IO, COLUMNS)
    if not info.valid:
        raise ResultsError(f"the trace of {run.name} is not valid: {info.reason}")
    frame = table.to_pandas()
    wanted = (frame["phase"] == phase) & (frame["op"] == op) & (frame["layer"] >= 0) & (frame["complete_ns"] >= 0)
    for column, values in (
        ("iteration", None if iteration is None else [iteration]),
        ("layer", layers),
        ("queue", queues),
    ):
        wanted &= True if values is None else frame[column].isin(values)
    if not wanted.any():
        raise ResultsError(
            f"the trace of {run.name} holds no {op} of {phase} iteration {iteration}, {layers}, {queues}"
        )
    return frame[wanted].reset_index(drop=True)


def tensor_beside_device(run: pd.Series, chosen: pd.DataFrame, color_by: str = "layer") -> Figure:
    """Two panels over time: each command as the bytes it covers in its tensor, and on the device."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    tensor, device = figure.subplots(2, 1, sharex=True)
    _draw(tensor, chosen, chosen["tensor_offset_bytes"], color_by)
    lines = _draw(device, chosen, compact(chosen), color_by)
    tensor.set(ylabel="In its tensor (MiB)", title=f"{describe(run)}: {_what(chosen)}")
    device.set(ylabel="On the device, holes cut (MiB)", xlabel="ms; each line goes from issue to completion")
    figure.colorbar(lines, ax=[tensor, device], label=color_by.capitalize(), ticks=sorted(chosen[color_by].unique()))
    return figure


def by_queue(run: pd.Series, chosen: pd.DataFrame) -> Figure:
    """One panel per hardware queue: which of the device's bytes went through it, coloured by layer."""
    queues = sorted(chosen["queue"].unique())
    figure = Figure(figsize=(9, 1 + 1.3 * len(queues)), layout="constrained")
    panels = figure.subplots(len(queues), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    zero_ns, offset_bytes = chosen["issue_ns"].min(), compact(chosen)
    for axes, queue in zip(panels, queues, strict=True):
        mine = chosen[chosen["queue"] == queue]
        _draw(axes, mine, offset_bytes[mine.index], "layer", zero_ns, chosen["layer"])
        axes.set_ylabel(f"queue {queue}\n{len(mine) / len(chosen):.0%}, MiB")
    panels[0].set_title(f"{describe(run)}: {_what(chosen)} by submission queue")
    panels[-1].set_xlabel("ms")
    return figure


def compact(chosen: pd.DataFrame) -> pd.Series:
    """Where each command begins on the device, in bytes, when holes of more than `HOLE_BYTES` are cut down to that."""
    order = chosen.sort_values("offset_bytes", kind="stable")
    reached = (order["offset_bytes"] + order["bytes"]).cummax().shift(fill_value=order["offset_bytes"].iloc[0])
    cut = (order["offset_bytes"] - reached - HOLE_BYTES).clip(lower=0).cumsum()
    return (order["offset_bytes"] - order["offset_bytes"].iloc[0] - cut).reindex(chosen.index)


def _draw(
    axes: Axes,
    chosen: pd.DataFrame,
    offset_bytes: pd.Series,
    color_by: str,
    zero_ns: int | None = None,
    scale: pd.Series | None = None,
) -> LineCollection:
    """One line per command, from its first byte at the time of issue to its last at that of completion."""
    zero_ns = chosen["issue_ns"].min() if zero_ns is None else zero_ns
    begin, end = ((chosen[name] - zero_ns) / 1e6 for name in ("issue_ns", "complete_ns"))
    low, high = offset_bytes / MIB, (offset_bytes + chosen["bytes"]) / MIB
    values = np.unique(chosen[color_by] if scale is None else scale)
    norm = BoundaryNorm([*(values - 0.5), values[-1] + 0.5], colormaps["turbo"].N) if len(values) > 1 else None
    ends = np.stack([np.column_stack([begin, low]), np.column_stack([end, high])], axis=1)
    lines = LineCollection(list(ends), array=chosen[color_by].to_numpy(), cmap="turbo", norm=norm, linewidths=THIN_PT)
    lines.set_rasterized(True)
    axes.add_collection(lines)
    axes.autoscale()
    axes.set_ylim(bottom=0)
    return lines


def _what(chosen: pd.DataFrame) -> str:
    size_mib = chosen["bytes"].sum() / MIB
    ops = " and ".join(sorted(map(str, chosen["op"].unique())))
    return f"{len(chosen):,} {ops}s, {size_mib:,.0f} MiB, {chosen['bytes'].mean() / 1024:,.0f} KiB each"

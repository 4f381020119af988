"""Figures of a trace that somebody else took: `python -m analysis.foreign_trace TRACE [--format NAME] [--out DIR]`.

TRACE is text of blkparse, biosnoop or the CHEOPS'25 artifact, a raw trace of ours, or device_io.parquet. Where it came
from is not known, so the figures say the format and nothing else.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.command_line import EXPECTED_ERRORS, message
from analysis.drawing import layout, style
from analysis.metrics.addresses import MIB, closed_gaps
from analysis.metrics.device_metrics import NS_PER_S, kb_per_run, throughput
from traces import schema
from traces.decode import SOURCES, decode
from traces.errors import TraceError

OPERATIONS = {"read": "#0072B2", "write": "#D55E00"}
BINS = 200


def main(arguments: list[str] | None = None) -> int:
    """Draw lba_pattern and disk_throughput; 1 and a sentence when the trace cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m analysis.foreign_trace", description=__doc__)
    parser.add_argument("trace", type=Path, help="text of a trace, or device_io.parquet")
    parser.add_argument("--format", choices=list(SOURCES), help="of text that this project did not write")
    parser.add_argument("--out", type=Path, default=Path("figures/foreign"), help="folder (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        commands, info = read(options.trace, options.format)
        if info.reason:
            print(f"analysis.foreign_trace: the trace is not whole: {info.reason}", file=sys.stderr)
        draw(commands, info, options.out)
    except EXPECTED_ERRORS as error:
        print(f"analysis.foreign_trace: {message(error)}", file=sys.stderr)
        return 1
    return 0


def read(path: Path, source: str | None) -> tuple[pd.DataFrame, schema.TraceInfo]:
    """Reads and writes in the order of issue; `complete_ns` is the issue where completions are not known.

    Raises:
        TraceError: the trace cannot be read, or holds no reads and writes.
    """
    if path.suffix == ".parquet":
        table, info = schema.read(path)
    else:
        with tempfile.TemporaryDirectory() as folder:
            decode(path, Path(folder) / schema.FILE_NAME, source)
            table, info = schema.read(Path(folder) / schema.FILE_NAME)
    commands = table.to_pandas()
    commands = commands[commands["op"].isin(list(OPERATIONS)) & (commands["offset_bytes"] >= 0)]
    if commands.empty:
        raise TraceError(f"{path} holds no reads or writes; was the disk idle, or is --format another one?")
    known = commands["complete_ns"] >= commands["issue_ns"]
    return commands.assign(complete_ns=commands["complete_ns"].where(known, commands["issue_ns"])), info


def note(commands: pd.DataFrame, info: schema.TraceInfo) -> str:
    """What is known of a trace."""
    runs = ", ".join(
        f"{op}s {kb_per_run(commands[commands['op'] == op]):,.0f} KB per sequential run"
        for op in OPERATIONS
        if (commands["op"] == op).any()
    )
    whole = "" if info.valid else f" Not whole: {info.reason}."
    return f"A trace read as {info.source}: {len(commands):,} commands of {', '.join(info.devices)}; {runs}.{whole}"


def draw(commands: pd.DataFrame, info: schema.TraceInfo, out_dir: Path) -> None:
    """Both figures, one line each."""
    out_dir.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(style.RC):
        for name, plot in (("lba_pattern", lba_pattern), ("disk_throughput", disk_throughput)):
            files = layout.save(plot(commands, note(commands, info)), out_dir / name, note(commands, info))
            print(f"{name:<20} {len(commands):,} commands  {', '.join(map(str, files))}")


def lba_pattern(commands: pd.DataFrame, text: str) -> Figure:
    """Addresses over time, gaps between what was used closed."""
    figure, panels = layout.new_panels(1, height_in=2.4)
    axes: Axes = panels[0, 0]
    placed = commands.assign(place=closed_gaps(commands["offset_bytes"], commands["bytes"]) / MIB)
    for op, color in OPERATIONS.items():
        of = placed[placed["op"] == op]
        seconds = (of["issue_ns"] - commands["issue_ns"].min()) / NS_PER_S
        axes.plot(seconds, of["place"], ".", color=color, markersize=1.2, label=f"{op}s", rasterized=True)
    axes.set_xlabel("Time (s)")
    axes.set_ylabel("Device address (MiB)")
    return _finish(figure, text)


def disk_throughput(commands: pd.DataFrame, text: str) -> Figure:
    """GB/s over time, reads and writes."""
    figure, panels = layout.new_panels(1, height_in=2.2)
    axes: Axes = panels[0, 0]
    begin_ns = int(commands["issue_ns"].min())
    end_ns = max(int(commands["complete_ns"].max()), begin_ns + 1)
    for op, color in OPERATIONS.items():
        rates = throughput(commands[commands["op"] == op], begin_ns, end_ns, BINS)
        axes.plot(rates["seconds"], np.maximum(rates["gb_per_s"], 0), color=color, label=f"{op}s")
    axes.set_ylim(0)
    axes.set_xlabel("Time (s)")
    axes.set_ylabel("Throughput (GB/s)")
    return _finish(figure, text)


def _finish(figure: Figure, text: str) -> Figure:
    layout.add_legend(figure)
    layout.add_note(figure, text)
    return figure


if __name__ == "__main__":
    sys.exit(main())

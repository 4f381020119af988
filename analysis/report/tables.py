"""The page's tables: medians by limit and variant, the runs, and the machines they were measured on."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.drawing.style import looks
from analysis.metrics.stats import summarise
from analysis.names import (
    BACKEND,
    CGROUP,
    CODE_HASH,
    CODE_REVISION,
    CPU,
    DEVICE,
    DISK,
    DISK_MODEL,
    DISK_SERIAL,
    FILE_SYSTEM,
    IO_PATH,
    KERNEL,
    REPETITION,
    STARTED_AT,
    VARIANT,
)
from analysis.results.load import optional
from analysis.selection.setups import Evidence, Setup, is_true
from dualblade.run.run_files import RunFile

Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Text in rows; `head` names the columns, `title` the table."""

    title: str
    head: Row
    rows: tuple[Row, ...]


def from_frame(frame: pd.DataFrame, title: str = "") -> Table:
    """Return a figure's numbers as a table, with four digits each."""
    rows = frame.map(lambda value: f"{value:.4g}" if isinstance(value, float) else str(value)).itertuples(index=False)
    return Table(title, tuple(map(str, frame.columns)), tuple(tuple(row) for row in rows))


QUANTITIES = {
    "prefill_s": ("Prefill latency (s)", "{:.2f}"),
    "decode_s_per_token": ("Decode latency (s per token)", "{:.3f}"),
    "decode_hit_rate": ("Hit rate of decode reads", "{:.1%}"),
}


def medians(setup: Setup) -> list[Table]:
    """One table per quantity: limits down, variants across, median and interval in each cell."""
    measured = {metric: setup.comparable(metric) for metric in QUANTITIES}
    return [_by_limit(runs, metric) for metric, runs in measured.items() if runs["memory_gb"].nunique() > 1]


def _by_limit(runs: pd.DataFrame, metric: str) -> Table:
    title, form = QUANTITIES[metric]
    variants = looks(runs[VARIANT])
    cells = summarise(runs, ["memory_gb", VARIANT], metric).set_index(["memory_gb", VARIANT])
    rows = [
        (f"{limit:g} GB", *(_cell(cells, (limit, variant), form) for variant in variants))
        for limit in sorted(runs["memory_gb"].unique())
    ]
    return Table(title, ("Limit", *(look.label for look in variants.values())), tuple(rows))


def _cell(cells: pd.DataFrame, key: tuple[float, str], form: str) -> str:
    if key not in cells.index:
        return "-"
    cell = cells.loc[key]
    text = form.format(cell["median"])
    return text if cell["runs"] < 2 else f"{text} ({form.format(cell['low'])} to {form.format(cell['high'])})"


@dataclass(frozen=True)
class Run:
    """One run for the page's list: where it is, and what it measured in words."""

    name: str
    anchor: str
    link: str
    cells: Row


RUN_HEAD = (
    "Variant or path",
    "Limit",
    "Rep.",
    "Prefill",
    "Decode/token",
    "Hit rate",
    "Written",
    "Code",
    "Started (UTC)",
)


def run_list(evidence: Evidence, used: Iterable[str], out_dir: Path) -> list[Run]:
    """The runs that a figure or a verdict rests on."""
    wanted = set(used)
    return [
        Run(str(name), anchor(str(name)), _link(evidence.results_dir / str(name), out_dir), _run_cells(run))
        for setup in evidence.setups
        for runs in (setup.runs, setup.io)
        for name, run in runs.iterrows()
        if name in wanted
    ]


def anchor(run: str) -> str:
    return "run-" + "".join(letter if letter.isalnum() else "-" for letter in run)


def _run_cells(run: pd.Series) -> Row:
    origin = (
        str(run.get(CODE_REVISION))[:10] + ("*" if is_true(run.get("environment.code_dirty")) else ""),
        str(run[STARTED_AT])[:16].replace("T", " "),
    )
    if IO_PATH in run:
        return (str(run[IO_PATH]), "none", str(run[REPETITION]), "-", "-", "-", "-", *origin)
    limit_gb, decode_s, hit_rate = run["memory_gb"], run["decode_s_per_token"], run["decode_hit_rate"]
    return (
        str(run[VARIANT]),
        "none" if pd.isna(limit_gb) else f"{limit_gb:g} GB",
        str(run[REPETITION]),
        f"{run['prefill_s']:.2f} s",
        "-" if pd.isna(decode_s) else f"{decode_s:.3f} s",
        "-" if pd.isna(hit_rate) else f"{hit_rate:.1%}",
        _written(run),
        *origin,
    )


def _written(run: pd.Series) -> str:
    """Bytes that the run put on the device: what it costs an SSD's life."""
    parts = [run.get(f"result.bytes.{phase}.device_write") for phase in ("prefill", "decode")]
    return f"{sum(parts) / 1e9:.2f} GB" if all(isinstance(part, int | float) for part in parts) else "-"


def _link(run_dir: Path, out_dir: Path) -> str:
    """Return a link to a run's result.json; an empty text for a run that lies in an archive."""
    return Path(os.path.relpath(run_dir / RunFile.RESULT, out_dir)).as_posix() if run_dir.exists() else ""


MACHINE = {
    "Kernel": KERNEL,
    "CPU": CPU,
    "Cores": "environment.cores",
    "Memory": "environment.memory_bytes",
    "Page replacement": "lru",
    "Transparent huge pages": "environment.thp",
    "cgroup version": CGROUP,
    "Disk": DISK,
    "Model": DISK_MODEL,
    "Serial": DISK_SERIAL,
    "File system": FILE_SYSTEM,
    "Readahead (KiB)": "environment.storage.read_ahead_kb",
    "I/O scheduler": "environment.storage.scheduler",
    "Direct path's backend": BACKEND,
    "Device and compute": DEVICE,
    "Python": "environment.python",
    "torch": "environment.packages.torch",
    "Engine (hash of its sources)": CODE_HASH,
    "Code revision": CODE_REVISION,
}


def machine(setup: Setup) -> Table:
    """Return the machine of a setup's runs; several values if it changed between runs."""
    runs = setup.runs if len(setup.runs) else setup.io
    rows = [(label, _values(optional(runs, column))) for label, column in MACHINE.items()]
    stated = f"{setup.stated}: no absolute time says anything about an SSD" if setup.stated else "nothing"
    rows.insert(0, ("Emulated or paced", stated))
    return Table(setup.name, ("", ""), tuple(row for row in rows if row[1]))


def _values(column: pd.Series) -> str:
    distinct = pd.Series(column.dropna().map(_text)).unique()
    return ", ".join(sorted(distinct))


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value / 2**30:.1f} GiB" if isinstance(value, int) and value > 2**24 else str(value)

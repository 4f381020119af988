"""Sentences on runs that a figure leaves out: how many there are, and the one or two settings that tell them apart."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from analysis.names import DEVICE, MODEL, SCALE, STORAGE, TESTBED, TRACE, WORKLOAD

MAX_SETTINGS = 2
STORAGE_COLUMNS = ("config.storage.", "environment.storage.", "config.emulated_ssd.")
MACHINE_COLUMNS = ("config.testbed.", "environment.", "kernel_series", "lru")
# The settings that a person chooses, the most telling first, with the columns that follow from each.
CHOICES: dict[str, tuple[str, ...]] = {
    TESTBED: (*MACHINE_COLUMNS, *STORAGE_COLUMNS),
    STORAGE: STORAGE_COLUMNS,
    MODEL: ("config.model.",),
    WORKLOAD: ("config.workload.", "config.decode_iterations", "decode_iterations"),
    SCALE: (),
    DEVICE: ("config.device.",),
    TRACE: ("config.trace.",),
    "lru": ("config.testbed.lru",),
}


def number_of_runs(runs: Collection[object]) -> str:
    """`1 run`, `2 runs`."""
    return f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}"


def describe_group(
    group: pd.DataFrame, axis: str, columns: list[str], values: tuple[str, ...], reference: tuple[str, ...]
) -> str:
    """Name a group of runs by its values of an axis, and by its settings that differ from the reference."""
    differing = {name: value for name, value, usual in zip(columns, values, reference, strict=True) if value != usual}
    return f"{number_of_runs(group)} of {', '.join(sorted(group[axis].unique()))} with {_settings(differing)}"


def _settings(differing: dict[str, str]) -> str:
    """`storage=ssd_b`, `workload=text, scale=16`, `io.op=write, io.size_mib=256 and 1 more`."""
    chosen = [name for name in CHOICES if name in differing]
    implied = {name for choice in chosen for name in differing if name != choice and name.startswith(CHOICES[choice])}
    named = [name for name in (*chosen, *(name for name in differing if name not in chosen)) if name not in implied]
    shown = ", ".join(f"{_short(name)}={differing[name].removesuffix('.0')}" for name in named[:MAX_SETTINGS])
    more = len(named) - MAX_SETTINGS
    return f"{shown} and {more} more" if more > 0 else shown


def _short(column: str) -> str:
    """The name as a person types it: `storage` for config.storage.name."""
    return column.removeprefix("config.").removeprefix("environment.").removesuffix(".name")

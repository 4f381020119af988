"""Numbers and runs in a finding's words."""

from __future__ import annotations

import pandas as pd

from analysis.names import CODE_HASH, REPETITION


def percent(ratio: float) -> str:
    """Return a change in percent, with its sign."""
    return f"{100 * ratio:+.0f} %"


def share(ratio: float) -> str:
    """Return a share in percent, with one more digit if it is small."""
    return f"{100 * ratio:.1f} %" if ratio < 0.1 else f"{100 * ratio:.0f} %"


def in_percent(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if ends is None else (100 * ends[0], 100 * ends[1])


def names(runs: pd.DataFrame) -> tuple[str, ...]:
    """Return the folders of the runs."""
    return tuple(str(name) for name in runs.index)


def basis(runs: pd.DataFrame) -> str:
    """Return in words how many repetitions a number has, and whether the engine changed between them."""
    repetitions = runs[REPETITION].nunique()
    engines = runs[CODE_HASH].nunique()
    alone = "One run per point: no interval, and noise may have decided."
    text = alone if repetitions == 1 else f"{repetitions} repetitions."
    return text if engines == 1 else f"{text} The runs are of {engines} versions of the engine."


def row_interval(row: pd.Series) -> tuple[float, float] | None:
    """The interval in a row of `stats.summarise`."""
    return (float(row["low"]), float(row["high"])) if row["runs"] > 1 else None

"""Straight lines through measured curves: how well a quantity follows another linearly."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.names import REPETITION


def line_per_repetition(runs: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Least squares of `y` over `x`, one row per repetition: columns slope (of `y` per `x`), explained (R², 0 to 1)."""
    lines = {turn: _line(group[[x, y]].dropna(), x, y) for turn, group in runs.groupby(REPETITION)}
    usable = {turn: line for turn, line in lines.items() if line is not None}
    return pd.DataFrame.from_dict(usable, orient="index", columns=["slope", "explained"])


def _line(points: pd.DataFrame, x: str, y: str) -> tuple[float, float] | None:
    """Return the line; None with fewer than three values of `x`, which do not test a line."""
    if points[x].nunique() < 3:
        return None
    slope, intercept = np.polyfit(points[x], points[y], 1)
    spread = ((points[y] - points[y].mean()) ** 2).sum()
    left = ((points[y] - slope * points[x] - intercept) ** 2).sum()
    return float(slope), float(1 - left / spread) if spread else 1.0

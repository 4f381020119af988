"""Unions of time intervals, in ns: arrays [n, 2] of begin and end, sorted and apart from each other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Intervals = npt.NDArray[np.int64]


def union(begin: npt.ArrayLike, end: npt.ArrayLike) -> Intervals:
    """The times that at least one of the intervals [begin, end) covers."""
    pairs = np.stack([np.asarray(begin, np.int64), np.asarray(end, np.int64)], axis=1)
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    if not len(pairs):
        return pairs
    reach = np.maximum.accumulate(pairs[:, 1])
    starts = np.append(True, pairs[1:, 0] > reach[:-1])
    return np.stack([pairs[starts, 0], reach[np.append(np.flatnonzero(starts)[1:] - 1, len(pairs) - 1)]], axis=1)


def length(intervals: Intervals) -> int:
    """Nanoseconds that a union covers."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def overlap(one: Intervals, other: Intervals) -> int:
    """Nanoseconds that both unions cover."""
    return length(one) + length(other) - length(union(*np.concatenate([one, other]).T))

"""Sets of points in time as sorted, disjoint intervals `(start, end)`. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]


def union(spans: Iterable[Interval]) -> list[Interval]:
    """Sort intervals and join those that touch or overlap."""
    joined: list[Interval] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def intersect(a: list[Interval], b: list[Interval]) -> list[Interval]:
    """Return the points that lie in both sets."""
    common, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            common.append((start, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return common


def subtract(a: list[Interval], b: list[Interval]) -> list[Interval]:
    """Return the points that lie in `a` and not in `b`."""
    if not a:
        return []
    first, last = a[0][0], a[-1][1]
    edges = [first, *(edge for span in b for edge in span), last]
    gaps = [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]
    return intersect(a, gaps)


def length(spans: Iterable[Interval]) -> int:
    """Add up the lengths of disjoint intervals."""
    return sum(end - start for start, end in spans)

"""Where the time goes: interval arithmetic against sets of points, and a phase whose parts are known."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualblade.record import intervals
from dualblade.record.io_log import Operation
from dualblade.record.phases import Activity, break_down

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda s: (s[0], s[0] + s[1])), max_size=8)


def points(sets: list[tuple[int, int]]) -> set[int]:
    return {point for start, end in sets for point in range(start, end)}


@given(spans, spans)
def test_intervals_are_sets_of_points(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    left, right = intervals.union(a), intervals.union(b)
    assert points(left) == points(a)
    assert points(intervals.intersect(left, right)) == points(a) & points(b)
    assert points(intervals.subtract(left, right)) == points(a) - points(b)
    assert intervals.length(left) == len(points(a))
    assert all(before[1] < after[0] for before, after in itertools.pairwise(left))


def operation(op: str, storage: tuple[int, int], link: tuple[int, int]) -> Operation:
    blank = {field.name: "" if field.type == "str" else 0 for field in dataclasses.fields(Operation)}
    times = dict(
        zip(("storage_start_ns", "storage_end_ns", "link_start_ns", "link_end_ns"), (*storage, *link), strict=True)
    )
    return Operation(**(blank | {"op": op} | times))  # type: ignore[arg-type]


def test_a_wait_counts_for_what_is_under_way() -> None:
    """Two windows; waits for a read, for its copy, for a write, and for nothing."""
    activity = Activity()
    activity.calls = [(100, 400), (600, 700)]
    activity.waits = {"read": [(110, 300)], "write": [(610, 650)]}
    operations = [
        operation("read", storage=(50, 200), link=(200, 280)),
        operation("read", storage=(260, 270), link=(270, 290)),
        operation("write", storage=(620, 640), link=(600, 615)),
    ]
    parts = break_down([(0, 500), (500, 1000)], activity, operations)
    assert parts.wall_s == pytest.approx(1000e-9)
    assert parts.compute_s == pytest.approx(600e-9)
    assert parts.storage_stall_s == pytest.approx((90 + 10 + 20) * 1e-9)
    assert parts.link_stall_s == pytest.approx((60 + 20 + 5) * 1e-9)
    assert parts.other_s == pytest.approx((300 + 100 - 120 - 85) * 1e-9)


@given(spans, spans, spans, spans)
def test_the_parts_add_up_to_the_wall(
    calls: list[tuple[int, int]],
    waits: list[tuple[int, int]],
    storage: list[tuple[int, int]],
    link: list[tuple[int, int]],
) -> None:
    activity = Activity()
    activity.calls = calls
    activity.waits = {"read": intervals.intersect(intervals.union(waits), intervals.union(calls)), "write": []}
    operations = [operation("read", *pair) for pair in zip(storage, link, strict=False)]
    parts = break_down([(0, 40), (40, 90)], activity, operations)
    total_s = parts.compute_s + parts.storage_stall_s + parts.link_stall_s + parts.other_s
    assert total_s == pytest.approx(parts.wall_s)
    assert min(dataclasses.astuple(parts)) >= 0


def test_a_wait_that_was_no_call_of_the_store_shows_in_the_sum() -> None:
    """The parts are measured separately: time that counts twice makes their sum more than the wall time."""
    activity = Activity()
    activity.calls = [(0, 40)]
    activity.waits = {"read": [(20, 60)], "write": []}
    parts = break_down([(0, 100)], activity, [operation("read", storage=(0, 100), link=(0, 0))])
    total_s = parts.compute_s + parts.storage_stall_s + parts.link_stall_s + parts.other_s
    assert total_s == pytest.approx(parts.wall_s + 20e-9)

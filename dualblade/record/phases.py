"""Where the wall time of prefill and decode goes (paper figure 2): compute, storage stall, link stall, other.

The caller's thread is in one of three states: outside the store, which counts as compute; in the store and waiting for
a transfer; or in the store and working, which counts as other. A wait counts as storage stall while a storage transfer
of the awaited kind runs, as link stall while only copies over the link run, and else as other.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from dualblade.paths.base import Phase
from dualblade.paths.ring import Op
from dualblade.record import intervals
from dualblade.record.intervals import Interval
from dualblade.record.io_log import Operation


@dataclass(frozen=True)
class Breakdown:
    """Seconds of one phase; the four parts are measured separately, so that a test can compare them with `wall_s`."""

    wall_s: float
    compute_s: float
    storage_stall_s: float
    link_stall_s: float
    other_s: float


class Activity:
    """Times at which the store was called and made its caller wait, in CLOCK_MONOTONIC nanoseconds, for one caller.

    With `keep=False` nothing is recorded.
    """

    def __init__(self, *, keep: bool = True) -> None:
        self._keep = keep
        self.calls: list[Interval] = []
        self.waits: dict[Op, list[Interval]] = {"read": [], "write": []}
        self._depth = 0

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Record the block as a call of the store; nested calls are part of it."""
        self._depth += 1
        start_ns = time.monotonic_ns()
        try:
            yield
        finally:
            self._depth -= 1
            if self._keep and not self._depth:
                self.calls.append((start_ns, time.monotonic_ns()))

    @contextlib.contextmanager
    def waiting_for(self, op: Op) -> Iterator[None]:
        """Record the block as a wait for reads or for writes."""
        start_ns = time.monotonic_ns()
        try:
            yield
        finally:
            if self._keep:
                self.waits[op].append((start_ns, time.monotonic_ns()))


class PhaseTimes:
    """Start and end of prefill and of each decode iteration; each begins where the one before ends."""

    def __init__(self) -> None:
        self.windows: list[Interval] = []
        self._start_ns = time.monotonic_ns()

    def begin(self) -> None:
        """Start the next window now."""
        self._start_ns = time.monotonic_ns()

    def end(self) -> None:
        """End the window: prefill first, then each decode iteration."""
        now_ns = time.monotonic_ns()
        self.windows.append((self._start_ns, now_ns))
        self._start_ns = now_ns

    @property
    def prefill_s(self) -> float:
        return _seconds(self.windows[:1])

    @property
    def decode_s(self) -> list[float]:
        """Seconds of each decode iteration."""
        return [_seconds([window]) for window in self.windows[1:]]

    def breakdown(self, activity: Activity, operations: Iterable[Operation]) -> dict[Phase, dict[str, float]]:
        """Break both phases down."""
        operations = list(operations)
        phases: dict[Phase, list[Interval]] = {"prefill": self.windows[:1], "decode": self.windows[1:]}
        return {phase: asdict(break_down(windows, activity, operations)) for phase, windows in phases.items()}


def break_down(windows: list[Interval], activity: Activity, operations: list[Operation]) -> Breakdown:
    """Break the time in `windows` down."""
    windows = intervals.union(windows)
    calls = intervals.intersect(intervals.union(activity.calls), windows)
    storage_ns = link_ns = 0
    stalls: list[Interval] = []
    for op, all_waits in activity.waits.items():
        waits = intervals.intersect(intervals.union(all_waits), windows)
        mine = [operation for operation in operations if operation.op == op]
        storage = intervals.union([(o.storage_start_ns, o.storage_end_ns) for o in mine])
        link = intervals.subtract(intervals.union([(o.link_start_ns, o.link_end_ns) for o in mine]), storage)
        for_storage, for_link = intervals.intersect(waits, storage), intervals.intersect(waits, link)
        storage_ns += intervals.length(for_storage)
        link_ns += intervals.length(for_link)
        stalls += [*for_storage, *for_link]
    return Breakdown(
        wall_s=_seconds(windows),
        compute_s=_seconds(intervals.subtract(windows, calls)),
        storage_stall_s=storage_ns / 1e9,
        link_stall_s=link_ns / 1e9,
        other_s=_seconds(intervals.subtract(calls, intervals.union(stalls))),
    )


def _seconds(spans: list[Interval]) -> float:
    return intervals.length(spans) / 1e9

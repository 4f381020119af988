"""Where the wall time of prefill and decode goes (paper figure 2): compute, storage stall, link stall, other.

The caller's thread is in one of three states: outside the store, which is compute; inside it and waiting for a
transfer; inside it and at work, which counts as other. A wait is a storage stall while a storage transfer of the kind
waited for is under way, a link stall while only copies over the link are, and other when neither is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from dualblade.record import intervals
from dualblade.record.intervals import Interval
from dualblade.record.io_log import Operation

Op = Literal["read", "write"]
Phase = Literal["prefill", "decode"]


@dataclass(frozen=True)
class Breakdown:
    """Seconds of one phase; each of the four parts is added up by itself, so that their sum can be held to `wall_s`."""

    wall_s: float
    compute_s: float
    storage_stall_s: float
    link_stall_s: float
    other_s: float


class Activity:
    """When the store was called and when it made its caller wait, CLOCK_MONOTONIC nanoseconds; one caller's thread.

    `keep=False`: nobody will ask, and nothing is kept.
    """

    def __init__(self, *, keep: bool = True) -> None:
        self._keep = keep
        self.calls: list[Interval] = []
        self.waits: dict[Op, list[Interval]] = {"read": [], "write": []}
        self._depth = 0

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """A call of the store; calls that it makes of itself are part of it."""
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
        """The caller is held up by reads, or by writes."""
        start_ns = time.monotonic_ns()
        try:
            yield
        finally:
            if self._keep:
                self.waits[op].append((start_ns, time.monotonic_ns()))


class PhaseTimes:
    """When prefill and each decode iteration began and ended; one begins where the one before ends."""

    def __init__(self) -> None:
        self.windows: list[Interval] = []
        self._start_ns = time.monotonic_ns()

    def begin(self) -> None:
        """What comes now belongs to the next window."""
        self._start_ns = time.monotonic_ns()

    def end(self) -> None:
        """Prefill, or the next decode iteration, is over."""
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
        """Both phases in parts."""
        operations = list(operations)
        phases: dict[Phase, list[Interval]] = {"prefill": self.windows[:1], "decode": self.windows[1:]}
        return {phase: asdict(break_down(windows, activity, operations)) for phase, windows in phases.items()}


def break_down(windows: list[Interval], activity: Activity, operations: list[Operation]) -> Breakdown:
    """The parts of the time in `windows`."""
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

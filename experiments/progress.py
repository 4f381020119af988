"""Progress of a sweep: a bar with the time left on a terminal, one line per point elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from experiments.points.io_point import KIND
from experiments.results_folder import State

if TYPE_CHECKING:
    from rich.progress import Progress

Event = Mapping[str, Any]


class Display:
    """Prints plain lines, and counts how many points ended in which state."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.counts: Counter[State] = Counter()
        self._measured_s: list[float] = []
        self._started = 0
        self._skipped = 0

    def begin(self, label: str) -> None:
        """Show that a point is about to be measured."""
        self._started += 1

    def event(self, event: Event) -> None:
        """Show an event that the engine reported."""

    def skipped(self, state: State) -> None:
        """Count a point that has a result already."""
        self._started += 1
        self._skipped += 1
        self.counts[state] += 1

    def measured(self, label: str, result: Event, seconds: float) -> None:
        """Print how a run ended: what it measured, or why it failed."""
        self._measured_s.append(seconds)
        state = State.DONE if result["status"] == "done" else State.FAILED
        self.counts[state] += 1
        text = summary(result) if state is State.DONE else f"failed: {result['error']}"
        self.line(f"{self._position()} {label}: {text} ({seconds:.1f} s){self._eta()}", state)

    def refused(self, label: str, error: str) -> None:
        """Print why the configuration of a point cannot be used."""
        self._started += 1
        self.counts[State.FAILED] += 1
        self.line(f"{self._position()} {label}: failed: {error}", State.FAILED)

    def close(self) -> None:
        """Print how the sweep ended, unless it was one point that was measured, whose line is there already."""
        done = sum(self.counts.values())
        if done and (self.total > 1 or self._skipped):
            counts = ", ".join(f"{count} {state.value}" for state, count in self.counts.items())
            self.line(f"{done} of {self.total} points: {counts} ({len(self._measured_s)} measured now)")
        if State.STALE in self.counts:
            self.line("stale: measured with another engine, kernel or device; rerun_stale=true measures them again")

    def line(self, text: str, state: State = State.DONE) -> None:
        print(text, file=sys.stderr if state is State.FAILED else sys.stdout, flush=True)

    def _position(self) -> str:
        return f"[{self._started:>{len(str(self.total))}}/{self.total}]"

    def _eta(self) -> str:
        """The time left, as text. Points that may still be skipped count as points to measure."""
        left = self.total - self._started
        if not left:
            return ""
        return f", {duration(left * sum(self._measured_s) / len(self._measured_s))} left"


class BarDisplay(Display):
    """Shows two bars below the lines.

    They are drawn rarely and without a thread, since the display runs beside a measurement.
    """

    REFRESH_S = 0.5

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self._refreshed_at = 0.0
        self._bars = _bars()
        self._sweep = self._bars.add_task("sweep", total=None, phase="")
        self._point = self._bars.add_task("", total=None, phase="")

    def begin(self, label: str) -> None:
        super().begin(label)
        self._bars.start()
        eta = self._eta().strip(", ") if self._measured_s else ""
        self._bars.update(self._sweep, total=self.total, completed=self._started - 1, phase=eta)
        self._bars.reset(self._point, description=label, total=None, phase="")
        self._bars.refresh()

    def event(self, event: Event) -> None:
        now = time.monotonic()
        if event.get("event") == "progress" and now - self._refreshed_at > self.REFRESH_S:
            self._refreshed_at = now
            self._bars.update(self._point, completed=event["done"], total=event["of"], phase=event["phase"])
            self._bars.refresh()

    def close(self) -> None:
        self._bars.stop()
        super().close()

    def line(self, text: str, state: State = State.DONE) -> None:
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def open_display(total: int) -> Iterator[Display]:
    """The display for a sweep of `total` points; it says how the sweep ended, however it ended."""
    display = BarDisplay(total) if sys.stdout.isatty() else Display(total)
    try:
        yield display
    finally:
        display.close()


def summary(result: Event) -> str:
    """The measurement in one line."""
    if result.get("kind") == KIND:
        best = max(result["cells"], key=lambda cell: cell["bytes_per_s"])
        size_kib, depth = best["request_bytes"] >> 10, best["queue_depth"]
        return (
            f"{len(result['cells'])} cells, at most {best['bytes_per_s'] / 1e9:.2f} GB/s ({size_kib} KiB, QD {depth})"
        )
    decode_s = result["decode_s"][1:] or result["decode_s"]
    hit_rate = result["hit_rate"]["decode"]
    hit = "" if hit_rate is None else f", hit rate {hit_rate:.1%}"
    return f"prefill {result['prefill_s']:.2f} s, decode {sum(decode_s) / len(decode_s):.3f} s/token{hit}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, rounded for a person."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def _bars() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # slow to import, terminals only

    label, phase = TextColumn("{task.description:<40}"), TextColumn("{task.fields[phase]}")
    return Progress(label, BarColumn(), MofNCompleteColumn(), phase, auto_refresh=False, transient=True)

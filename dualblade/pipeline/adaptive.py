"""The adaptive policy (paper, "Adaptive pipeline"): Overlap-Intra or Overlap-Cross, by each group's own throughput.

Decode iteration 1 is cold and ignored, iteration 2 runs Intra, iteration 3 Cross; then the faster one is kept. Beyond
the paper, and off by default, a group probes again when its throughput differs from the expected one by a factor.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from dualblade.paths.base import Moment, Transfer

Probed = Literal["intra", "cross"]

COLD, INTRA, CROSS = 1, 2, 3  # iterations of a group since it began to probe


@dataclass
class Iteration:
    """One decode iteration of a group: its strategy, the bytes loaded, and the time in which a layer was loading."""

    number: int
    strategy: Probed
    size_bytes: int = 0
    seconds: float = 0.0

    @property
    def gb_per_s(self) -> float | None:
        return self.size_bytes / self.seconds / 1e9 if self.seconds else None


@dataclass
class Decision:
    """From `iteration` on the group runs `choice`, because of these throughputs."""

    choice: Probed
    iteration: int
    intra_gb_per_s: float
    cross_gb_per_s: float

    @property
    def expected_gb_per_s(self) -> float:
        return self.cross_gb_per_s if self.choice == "cross" else self.intra_gb_per_s


@dataclass
class _Group:
    """The iterations of one group; `step` counts them since the group began to probe."""

    step: int = 0
    drifted: int = 0
    iterations: list[Iteration] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    @property
    def decided(self) -> Decision | None:
        return self.decisions[-1] if self.decisions and self.step > CROSS else None


class Adaptive:
    """Probes, decides and, if configured, probes again; one instance serves all groups and threads."""

    name = "adaptive"

    def __init__(self, reprobe_factor: float | None = None, reprobe_iterations: int = 3) -> None:
        self._factor = reprobe_factor
        self._max_drifted = reprobe_iterations
        self._groups: dict[str, _Group] = {}
        self._lock = threading.Lock()

    def strategy(self, group: str, moment: Moment) -> Probed:
        """Return how to load the group's next layer; the first load of an iteration begins a new step."""
        if moment.phase != "decode":
            return "intra"  # a prompt in chunks reads its earlier chunks; that decides nothing
        with self._lock:
            state = self._groups.setdefault(group, _Group())
            if not state.iterations or state.iterations[-1].number != moment.iteration:
                self._advance(state, moment.iteration)
            return state.iterations[-1].strategy

    def watch(
        self, transfers: Sequence[Transfer], loads: Sequence[Future[None]], before: Sequence[Future[None]]
    ) -> None:
        """Observe these loads of one layer once all are done; their time begins when those `before` them end."""
        start_ns = time.monotonic_ns()
        left = len(loads)
        lock = threading.Lock()
        first = transfers[0]
        size_bytes = sum(transfer.device.nbytes for transfer in transfers)

        def begin(load: Future[None]) -> None:
            nonlocal start_ns
            start_ns = time.monotonic_ns()

        def done(load: Future[None]) -> None:
            nonlocal left
            with lock:
                left -= 1
                last = left == 0
            if last and not any(load.cancelled() or load.exception() for load in loads):
                self.observe(first.path.name, first.moment, size_bytes, (time.monotonic_ns() - start_ns) / 1e9)

        for load in before:
            load.add_done_callback(begin)
        for load in loads:
            load.add_done_callback(done)

    def observe(self, group: str, moment: Moment, size_bytes: int, seconds: float) -> None:
        """Add a loaded layer to its iteration."""
        with self._lock:
            state = self._groups.get(group)
            if state and state.iterations[-1].number == moment.iteration:
                state.iterations[-1].size_bytes += size_bytes
                state.iterations[-1].seconds += seconds

    def _advance(self, state: _Group, number: int) -> None:
        """Begin iteration `number` with the next step of a probe, the chosen strategy, or a new probe."""
        if state.decided and self._has_drifted(state, state.decided):
            state.step, state.drifted = COLD, 0
        state.step += 1
        if state.step == CROSS + 1:
            _decide(state, number)
        decision = state.decided
        strategy: Probed = decision.choice if decision else "cross" if state.step == CROSS else "intra"
        state.iterations.append(Iteration(number, strategy))

    def _has_drifted(self, state: _Group, decision: Decision) -> bool:
        """Whether the throughput was off by the factor in enough iterations in a row."""
        rate = state.iterations[-1].gb_per_s
        if self._factor is None or rate is None:
            return False
        ratio = rate / decision.expected_gb_per_s
        state.drifted = state.drifted + 1 if max(ratio, 1 / ratio) > self._factor else 0
        return state.drifted >= self._max_drifted

    def summary(self) -> dict[str, Any]:
        """Return, per group, the current choice, every decision and every iteration, with their throughputs."""
        with self._lock:
            return {"policy": self.name, "groups": {name: _summary(state) for name, state in self._groups.items()}}


def _decide(state: _Group, number: int) -> None:
    """Keep the strategy of the faster of the last two iterations; Intra, the simpler one, if they are equal."""
    intra, cross = (iteration.gb_per_s or 0.0 for iteration in state.iterations[-2:])
    state.decisions.append(Decision("cross" if cross > intra else "intra", number, intra, cross))


def _summary(state: _Group) -> dict[str, Any]:
    return {
        "choice": state.decided.choice if state.decided else None,
        "decisions": [
            {
                "choice": decision.choice,
                "iteration": decision.iteration,
                "intra_gb_per_s": decision.intra_gb_per_s,
                "cross_gb_per_s": decision.cross_gb_per_s,
            }
            for decision in state.decisions
        ],
        "iterations": [
            {"iteration": iteration.number, "strategy": iteration.strategy, "gb_per_s": iteration.gb_per_s}
            for iteration in state.iterations
        ],
    }

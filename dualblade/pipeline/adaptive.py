"""The adaptive choice (paper, "Adaptive pipeline"): Overlap-Intra or Overlap-Cross, by each group's own throughput.

Decode iteration 1 is cold and ignored, iteration 2 runs Intra, iteration 3 Cross; then the faster one is kept. Beyond
the paper, and off unless asked for, a group probes anew when its throughput has left what decided by a stated factor.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Literal

from dualblade.paths.base import Moment

Probed = Literal["intra", "cross"]

COLD, INTRA, CROSS = 1, 2, 3  # a group's iterations since it began to probe


@dataclass
class Iteration:
    """What one decode iteration of a group ran, and how fast: bytes over the time in which any layer was loading."""

    number: int
    strategy: Probed
    size_bytes: int = 0
    seconds: float = 0.0

    @property
    def gb_per_s(self) -> float | None:
        return self.size_bytes / self.seconds / 1e9 if self.seconds else None


@dataclass
class Decision:
    """From `iteration` on the group runs `choice`, because of these throughputs (bytes per nanosecond, GB/s)."""

    choice: Probed
    iteration: int
    intra_gb_per_s: float
    cross_gb_per_s: float

    @property
    def expected_gb_per_s(self) -> float:
        return self.cross_gb_per_s if self.choice == "cross" else self.intra_gb_per_s


@dataclass
class _Group:
    """The iterations of one group; `step` counts them since it began to probe."""

    step: int = 0
    drifted: int = 0
    iterations: list[Iteration] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    @property
    def decided(self) -> Decision | None:
        return self.decisions[-1] if self.decisions and self.step > CROSS else None


class Adaptive:
    """Probes, decides and, on request, probes again; one instance serves all groups and threads."""

    name = "adaptive"

    def __init__(self, reprobe_factor: float | None = None, reprobe_iterations: int = 3) -> None:
        self._factor = reprobe_factor
        self._patience = reprobe_iterations
        self._groups: dict[str, _Group] = {}
        self._lock = threading.Lock()

    def strategy(self, group: str, moment: Moment) -> Probed:
        """How to load the group's next layer; the first load of an iteration is where a new step begins."""
        if moment.phase != "decode":
            return "intra"  # a prompt in chunks reads what it has stored so far; nothing is decided by that
        with self._lock:
            state = self._groups.setdefault(group, _Group())
            if not state.iterations or state.iterations[-1].number != moment.iteration:
                self._advance(state, moment.iteration)
            return state.iterations[-1].strategy

    def observe(self, group: str, moment: Moment, size_bytes: int, seconds: float) -> None:
        """Add a loaded layer to its iteration."""
        with self._lock:
            state = self._groups.get(group)
            if state and state.iterations[-1].number == moment.iteration:
                state.iterations[-1].size_bytes += size_bytes
                state.iterations[-1].seconds += seconds

    def _advance(self, state: _Group, number: int) -> None:
        """Begin iteration `number`: the next step of a probe, the choice, or a new probe."""
        if state.decided and self._has_drifted(state, state.decided):
            state.step, state.drifted = COLD, 0
        state.step += 1
        if state.step == CROSS + 1:
            _decide(state, number)
        decision = state.decided
        strategy: Probed = decision.choice if decision else "cross" if state.step == CROSS else "intra"
        state.iterations.append(Iteration(number, strategy))

    def _has_drifted(self, state: _Group, decision: Decision) -> bool:
        """Whether the throughput has been off by the factor for as many iterations in a row as patience takes."""
        rate = state.iterations[-1].gb_per_s
        if self._factor is None or rate is None:
            return False
        ratio = rate / decision.expected_gb_per_s
        state.drifted = state.drifted + 1 if max(ratio, 1 / ratio) > self._factor else 0
        return state.drifted >= self._patience

    def describe(self) -> dict[str, Any]:
        """Per group: the choice in force, every decision with its throughputs, and every iteration's own."""
        with self._lock:
            return {"policy": self.name, "groups": {name: _describe(state) for name, state in self._groups.items()}}


def _decide(state: _Group, number: int) -> None:
    """Keep the faster of the last two iterations; Intra, the simpler one, when there is nothing to tell them apart."""
    intra, cross = (iteration.gb_per_s or 0.0 for iteration in state.iterations[-2:])
    state.decisions.append(Decision("cross" if cross > intra else "intra", number, intra, cross))


def _describe(state: _Group) -> dict[str, Any]:
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

"""How the reads and link copies of a layer overlap: the policy names a strategy for each layer that is loaded.

A group is the layers of one path. The policy changes only the time, never the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Literal, Protocol

from dualblade.config.run import VariantConfig
from dualblade.paths.base import Moment, Transfer
from dualblade.pipeline.adaptive import Adaptive

Strategy = Literal["none", "intra", "cross", "overlap_full"]


class Policy(Protocol):
    """Names the strategy of each load, and may learn from its time."""

    @property
    def name(self) -> str: ...

    def strategy(self, group: str, moment: Moment) -> Strategy:
        """Return how to load the next layer of a group; called in the order of the loads."""
        ...

    def watch(
        self, transfers: Sequence[Transfer], loads: Sequence[Future[None]], before: Sequence[Future[None]]
    ) -> None:
        """Learn, once these loads of one layer are done, how long they took after the loads `before` them."""
        ...

    def summary(self) -> dict[str, Any]:
        """Return the policy's part of result.json: the choice of each group and its reasons."""
        ...


class Fixed:
    """One strategy for all groups."""

    def __init__(self, strategy: Strategy) -> None:
        self.name: Strategy = strategy

    def strategy(self, group: str, moment: Moment) -> Strategy:
        return self.name

    def watch(
        self, transfers: Sequence[Transfer], loads: Sequence[Future[None]], before: Sequence[Future[None]]
    ) -> None:
        """A fixed strategy learns nothing."""

    def summary(self) -> dict[str, Any]:
        return {"policy": self.name, "groups": {}}


def policy_of(variant: VariantConfig) -> Policy:
    """Make the policy of a variant."""
    if variant.pipeline == "adaptive":
        return Adaptive(variant.reprobe_factor, variant.reprobe_iterations)
    return Fixed(variant.pipeline)

"""How the reads and link copies of a layer overlap: the policy names a strategy for each layer that is loaded.

A group is the layers of one path. Whatever the policy, results are the same; only the time differs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Literal, Protocol

from dualblade.config.run import VariantConfig
from dualblade.paths.base import Moment, Transfer
from dualblade.pipeline.adaptive import Adaptive

Strategy = Literal["none", "intra", "cross", "overlap_full"]


class Policy(Protocol):
    """Names the strategy of each load, and is told how long it took."""

    @property
    def name(self) -> str: ...

    def strategy(self, group: str, moment: Moment) -> Strategy:
        """How to load the next layer of a group; asked in the order of the loads."""
        ...

    def observe(self, group: str, moment: Moment, size_bytes: int, seconds: float) -> None:
        """A layer of a group was loaded; called by the thread that finished last."""
        ...

    def describe(self) -> dict[str, Any]:
        """The choice of each group and what it was based on."""
        ...


class Fixed:
    """One strategy for all."""

    def __init__(self, strategy: Strategy) -> None:
        self.name: Strategy = strategy

    def strategy(self, group: str, moment: Moment) -> Strategy:
        return self.name

    def observe(self, group: str, moment: Moment, size_bytes: int, seconds: float) -> None:
        """A fixed strategy learns nothing."""

    def describe(self) -> dict[str, Any]:
        return {"policy": self.name, "groups": {}}


def policy(variant: VariantConfig) -> Policy:
    """The policy of a variant."""
    if variant.pipeline == "adaptive":
        return Adaptive(variant.reprobe_factor, variant.reprobe_iterations)
    return Fixed(variant.pipeline)


def watch(
    policy: Policy, transfers: Sequence[Transfer], loads: Sequence[Future[None]], before: Sequence[Future[None]]
) -> None:
    """Tell the policy, once these loads of one layer are all done, how long they took after those `before` them."""
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
            policy.observe(first.path.name, first.moment, size_bytes, (time.monotonic_ns() - start_ns) / 1e9)

    for load in before:
        load.add_done_callback(begin)
    for load in loads:
        load.add_done_callback(done)

"""Puts events in order of time: a tracer empties one buffer per CPU after the other, so its text is not."""

from __future__ import annotations

import numpy as np

from traces.events import NONE, Events, concatenate

# How much later than its successors an event may be printed: a full buffer (16 MiB, some 200,000 events) at a rate
# that a CPU cannot exceed for long. One that comes later still is paired all the same.
HOLD_NS = 2 * 10**9


class Reorder:
    """Feed it blocks of events as they were printed; it yields those that no earlier one can follow any more."""

    def __init__(self, hold_ns: int = HOLD_NS) -> None:
        self._hold_ns = hold_ns
        self._held = NONE
        self._newest_ns = 0

    def feed(self, events: Events) -> Events:
        """Events in order of time; the newest stay behind for the next block."""
        merged = concatenate([self._held, events]).by_time()
        if not len(merged):
            return merged
        self._newest_ns = max(self._newest_ns, int(merged.ns[-1]))
        ready = int(np.searchsorted(merged.ns, self._newest_ns - self._hold_ns, side="right"))
        self._held = merged.take(np.arange(ready, len(merged)))
        return merged.take(np.arange(ready))

    def rest(self) -> Events:
        """The newest ones, at the end."""
        held, self._held = self._held, NONE
        return held

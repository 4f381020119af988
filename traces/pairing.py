"""Pairs the events of commands, block of events by block: what is in flight is carried over, nothing else is kept.

A command is an issue that is followed, among the events with its key, by a completion. An issue followed by a requeue
never reached the device. An issue followed by another one lost its completion, and a completion without an issue was
given to the device before the trace began.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.events import COMPLETE, ISSUE, NONE, REQUEUE, Events, Int, concatenate


@dataclass(frozen=True)
class Commands:
    """Issues, in the order of their keys, and beside each the time and status of its completion (-1: not seen)."""

    issues: Events
    complete_ns: Int
    status: Int

    def __len__(self) -> int:
        return len(self.issues)


class Pairing:
    """Feed it blocks of events in order of time; it yields the commands that completed in each."""

    def __init__(self) -> None:
        self.requeues = 0
        self.unmatched_issues = 0
        self.unmatched_completions = 0
        self._in_flight = NONE
        self._depths = np.zeros(0, np.int64)  # by device

    def feed(self, events: Events) -> Commands:
        """The commands that completed among these events."""
        carried = len(self._in_flight)
        events = concatenate([self._in_flight, events])
        order = np.argsort(events.key, kind="stable")
        key, kind = events.key[order], events.kind[order]
        goes_on = np.append(key[1:] == key[:-1], False)
        following = np.append(kind[1:], np.int8(-1))
        issued = kind == ISSUE
        open_before = np.append(False, (goes_on & issued)[:-1])
        depth = self._count_depths(events, carried, order, open_before)
        completed = issued & goes_on & (following == COMPLETE)
        self.requeues += int(np.sum(issued & goes_on & (following == REQUEUE)))
        self.unmatched_issues += int(np.sum(issued & goes_on & (following == ISSUE)))
        self.unmatched_completions += int(np.sum((kind == COMPLETE) & ~open_before))
        places = np.flatnonzero(completed)
        issues, ends = order[places], order[places + 1]
        pending = np.sort(order[issued & ~goes_on])
        self._in_flight = _with_depth(events, pending, depth)
        return Commands(_with_depth(events, issues, depth), events.ns[ends], events.status[ends].astype(np.int64))

    def rest(self) -> Commands:
        """What was still in flight when the trace ended."""
        issues, self._in_flight = self._in_flight, NONE
        return unpaired(issues)

    def _count_depths(self, events: Events, carried: int, order: Int, open_before: np.ndarray) -> Int:
        """Commands in flight on its device after each event; issues carried over have theirs already."""
        was_open = np.empty(len(events), bool)
        was_open[order] = open_before
        change = np.where(events.kind == ISSUE, (~was_open).astype(np.int64), -was_open.astype(np.int64))
        change[:carried] = 0
        depth = events.depth.astype(np.int64)
        for device in np.unique(events.device[carried:]):
            if device >= len(self._depths):
                self._depths = np.append(self._depths, np.zeros(device + 1 - len(self._depths), np.int64))
            here = np.flatnonzero(events.device[carried:] == device) + carried
            depth[here] = self._depths[device] + np.cumsum(change[here])
            if len(here):
                self._depths[device] = depth[here[-1]]
        return depth


def unpaired(issues: Events) -> Commands:
    """Commands of which no completion is known."""
    unknown = np.full(len(issues), -1, np.int64)
    return Commands(issues, unknown, unknown)


def _with_depth(events: Events, chosen: Int, depth: Int) -> Events:
    taken = events.take(chosen)
    taken.depth[:] = depth[chosen]
    return taken

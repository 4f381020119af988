"""Makes commands of traces that print issue and completion apart (blkparse).

A command is an issue whose next event with the same key is a completion. An issue before a requeue never reached the
device. An issue before another issue lost its completion. A completion without an issue belongs to a command that was
issued before the trace began. Only commands in flight are kept from one block of events to the next.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from traces.commands import COMMAND, Array, Int, depth_at_issue, in_order, records
from traces.text import LineCounts

ISSUE, COMPLETE, REQUEUE, NO_EVENT = 0, 1, 2, -1

# `key` is equal for the events of one command, and of no other command in flight. The columns of a command are those of
# its issue; `status` is that of its completion.
EVENT = np.dtype([*((name, COMMAND[name]) for name in COMMAND.names or ()), ("kind", np.int8), ("key", np.int64)])


def paired(blocks: Iterator[Array], counts: LineCounts) -> Iterator[Array]:
    """Yield the commands of events whose time is `issue_ns`; last those that were in flight at the end."""
    in_flight = np.empty(0, EVENT)
    for events, _ in in_order(blocks, EVENT, "issue_ns", "issue_ns"):
        known = np.concatenate([in_flight, events])
        kind = np.append(known["kind"], np.int8(NO_EVENT))
        issue = np.flatnonzero(kind == ISSUE)
        end = _next_of_key(known["key"])[issue]
        end_kind = kind[end]
        completed = end_kind == COMPLETE
        counts.requeues += int(np.count_nonzero(end_kind == REQUEUE))
        counts.unmatched_issues += int(np.count_nonzero(end_kind == ISSUE))
        counts.unmatched_completions += int(np.count_nonzero(kind == COMPLETE) - np.count_nonzero(completed))
        # Places count instead of times. A command that lost its completion ended before the next with its key began.
        depth = depth_at_issue(known["device"][issue], issue, end - (end_kind == ISSUE))
        new = issue >= len(in_flight)
        known["depth_at_issue"][issue[new]] = depth[new]
        yield _commands(known[issue[completed]], known[end[completed]])
        in_flight = known[issue[end_kind == NO_EVENT]]
    yield _commands(in_flight, None)


def _next_of_key(key: Int) -> npt.NDArray[np.intp]:
    """Return the place of the next event with the same key; the number of events where there is none."""
    following = np.full(len(key), len(key))
    order = np.argsort(key, kind="stable")
    same = key[order[1:]] == key[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    return following


def _commands(issues: Array, completions: Array | None) -> Array:
    commands = records(COMMAND, len(issues), **{name: issues[name] for name in COMMAND.names or ()})
    commands["complete_ns"] = -1 if completions is None else completions["issue_ns"]
    commands["status"] = -1 if completions is None else completions["status"]
    return commands

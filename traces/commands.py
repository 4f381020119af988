"""Device commands as structured arrays, and the number of commands in flight when each was issued.

Text arrives in blocks, and not in the order of time: a tracer empties the buffer of one CPU after the other. So the
newest commands are held back until no earlier one can follow. This bounds the memory, whatever the length of the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from traces.schema import OPERATIONS
from traces.text import LineCounts

Int = npt.NDArray[np.int64]
Array = npt.NDArray[np.void]  # one record for each command (or event)

READ, WRITE, DEALLOCATE, FLUSH, OTHER = range(len(OPERATIONS))
SECTOR_BYTES = 512  # in the block layer, whatever the block size of the device is

# The columns of traces/schema.py that a trace alone gives. `device` is an index into the names in traces/devices.py.
COMMAND = np.dtype(
    [
        ("issue_ns", np.int64),
        ("complete_ns", np.int64),
        ("offset_bytes", np.int64),
        ("bytes", np.int64),
        ("device", np.int32),
        ("queue", np.int32),
        ("cid", np.int32),
        ("status", np.int32),
        ("depth_at_issue", np.int32),
        ("op", np.int8),
    ]
)

# The longest time by which a line may be printed late: a full buffer (16 MiB, some 200,000 lines), at the highest rate
# that a CPU can keep up. A later line still counts, but the depths of the commands before it do not include it.
HOLD_NS = 2 * 10**9
FOREVER_NS = int(np.iinfo(np.int64).max)


def records(dtype: np.dtype[np.void], length: int, **columns: npt.ArrayLike) -> Array:
    """Return an array of records. Each column is an array, or one value for all; columns not given are -1."""
    made = np.empty(length, dtype)
    for name in dtype.names or ():
        made[name] = columns.get(name, -1)
    return made


def whole_commands(counts: LineCounts, issue_ns: Int, complete_ns: Int, **columns: npt.ArrayLike) -> Array:
    """Return the commands of lines that each hold a whole one. Those issued before the trace began are only counted."""
    commands = records(COMMAND, len(issue_ns), issue_ns=issue_ns, complete_ns=complete_ns, **columns)
    whole: Array = commands[(issue_ns != 0) & (issue_ns <= complete_ns)]
    counts.printed_events += len(commands)
    counts.unmatched_completions += len(commands) - len(whole)
    return whole


def with_depths(blocks: Iterator[Array]) -> Iterator[Array]:
    """Yield commands in the order of issue, each with its depth."""
    in_flight = np.empty(0, COMMAND)
    for commands, until_ns in in_order(blocks, COMMAND, "issue_ns", "complete_ns"):
        known = np.concatenate([in_flight, commands])
        depth = depth_at_issue(known["device"], known["issue_ns"], known["complete_ns"])
        commands["depth_at_issue"] = depth[len(in_flight) :]
        in_flight = known[known["complete_ns"] > until_ns]
        yield commands


def in_order(blocks: Iterator[Array], dtype: np.dtype[Any], begin: str, end: str) -> Iterator[tuple[Array, int]]:
    """Yield the records sorted by the column `begin`, and the time up to which they are complete.

    The newest ones are held back, as seen from the latest `end`.
    """
    held, newest_ns = np.empty(0, dtype), 0
    for block in blocks:
        merged = np.concatenate([held, block])
        merged = merged[np.argsort(merged[begin], kind="stable")]
        newest_ns = max(newest_ns, int(block[end].max(initial=0)))
        until_ns = newest_ns - HOLD_NS
        ready = int(np.searchsorted(merged[begin], until_ns, side="right"))
        held = merged[ready:].copy()
        yield merged[:ready], until_ns
    yield held, FOREVER_NS


def depth_at_issue(device: npt.NDArray[np.int32], issue: Int, end: Int) -> Int:
    """Return the commands in flight on its device when each was issued, itself included.

    The commands are in the order of issue. One that ends in the moment of an issue is still in flight.
    """
    depth = np.empty(len(device), np.int64)
    for number in np.unique(device):
        here = device == number
        issued = np.arange(1, np.count_nonzero(here) + 1)
        depth[here] = issued - np.searchsorted(np.sort(end[here]), issue[here], side="left")
    return depth

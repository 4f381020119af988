"""The clock of a paced device against the rules of any single server: first come, first served within a queue, equal
shares between queues, no idle time while there is work, and no credit for idle time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from dualblade.native._compiled import ffi, lib
from hypothesis import given
from hypothesis import strategies as st

NS_PER_BYTE = 2
LATENCY_NS = 1000

arrivals = st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 3), st.integers(1, 5000)), min_size=1, max_size=30)


def completions(commands: Iterable[tuple[int, int, int]]) -> list[int]:
    """Completion time of each command (gap to the one before in ns, queue, bytes), asked again at every arrival."""
    clock = ffi.gc(lib.db_clock_new(NS_PER_BYTE, 2 * NS_PER_BYTE, LATENCY_NS), lib.db_clock_free)
    queues = [lib.db_clock_join(clock) for _ in range(4)]
    now_ns, tickets, due_ns = 1_000_000, [], []
    for gap_ns, queue, size_bytes in commands:
        now_ns += gap_ns
        tickets.append(lib.db_clock_issue(clock, queues[queue], 0, size_bytes, now_ns))
        due_ns.append(0)
        due_ns = [lib.db_clock_due(clock, ticket, now_ns) or due for ticket, due in zip(tickets, due_ns, strict=True)]
    return due_ns


def one_after_the_other(commands: Iterable[tuple[int, int, int]]) -> list[int]:
    """Completion times of a server that takes commands as they come, from any queue."""
    now_ns, free_ns, done_ns = 1_000_000, 0, []
    for gap_ns, _, size_bytes in commands:
        now_ns += gap_ns
        free_ns = max(now_ns, free_ns) + size_bytes * NS_PER_BYTE
        done_ns.append(free_ns + LATENCY_NS)
    return done_ns


@given(arrivals)
def test_a_single_queue_is_served_in_order(commands: list[tuple[int, int, int]]) -> None:
    alone = [(gap_ns, 0, size_bytes) for gap_ns, _, size_bytes in commands]
    assert completions(alone) == pytest.approx(one_after_the_other(alone), abs=50)


@given(arrivals)
def test_sharing_neither_idles_nor_saves_work(commands: list[tuple[int, int, int]]) -> None:
    """The server finishes all commands at the same time, however they are spread over queues."""
    assert max(completions(commands)) == pytest.approx(max(one_after_the_other(commands)), abs=50)


@given(arrivals)
def test_no_command_is_faster_than_the_device(commands: list[tuple[int, int, int]]) -> None:
    now_ns = itertools.accumulate((gap_ns for gap_ns, _, _ in commands), initial=1_000_000)
    next(now_ns)
    for arrived_ns, (_, _, size_bytes), done_ns in zip(now_ns, commands, completions(commands), strict=True):
        assert done_ns >= arrived_ns + size_bytes * NS_PER_BYTE + LATENCY_NS - 50


def test_queues_share_equally() -> None:
    together = completions([(0, 0, 4000), (0, 1, 4000), (0, 2, 1000)])
    start_ns = 1_000_000 + LATENCY_NS
    assert [done - start_ns for done in together] == pytest.approx([18_000, 18_000, 6000], abs=50)


def test_idle_time_earns_no_credit() -> None:
    first, second = completions([(0, 0, 1000), (1_000_000, 0, 1000)])
    assert second - first == pytest.approx(1_000_000, abs=50)

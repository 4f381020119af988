"""Page-cache budget B_pc: what the kernel lets this process keep in the page cache (paper, section "Budget").

Every memory cgroup above a process reclaims on its own when it meets its limit, so the one with the least room decides,
or the system when it has less. Room is the limit less what stays charged. What the process has allocated and touched
is charged already; what it is going to allocate yet is passed as `reserved_bytes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dualblade.errors import BudgetError
from dualblade.linux.cgroups import MemoryCgroup, memory_cgroups, parse_table


@dataclass(frozen=True)
class Budget:
    """B_pc and how it came about.

    `limited_by` is the file of the deciding limit, whose value is `limit_bytes`; or MemAvailable, without a limit.
    `process_bytes` is what the innermost cgroup with a limit needs; without one, the process's anonymous memory.
    """

    b_pc_bytes: int
    limit_bytes: int | None
    limited_by: str
    process_bytes: int
    reserved_bytes: int
    system_available_bytes: int


class _Room(NamedTuple):
    free_bytes: int
    limit_bytes: int | None
    limited_by: str


def measure_budget(reserved_bytes: int = 0, root: Path = Path("/")) -> Budget:
    """B_pc now: after the buffers are touched, before KV files are mapped (what is mapped counts as needed).

    `root` stands in for / in tests.

    Raises:
        BudgetError: `reserved_bytes` are not free.
    """
    available_bytes = parse_table((root / "proc/meminfo").read_text())["MemAvailable"] << 10
    return least_room(memory_cgroups(root), available_bytes, anonymous_bytes(root), reserved_bytes)


def refuse_unless_free(needed_bytes: int, root: Path = Path("/")) -> None:
    """Refuse what would end with the kernel killing this process, in one sentence before it does.

    What the kernel could take from others or swap out counts as free, more generously than B_pc has it; accounts that
    cannot be read say nothing. `root` stands in for / in tests.

    Raises:
        BudgetError: a hard limit, or the system, leaves less than `needed_bytes`.
    """
    for room in _hard_rooms(root):
        if room.free_bytes < needed_bytes:
            raise _refusal(needed_bytes, room)


def anonymous_bytes(root: Path = Path("/")) -> int:
    """Anonymous memory of this process that is in use."""
    return parse_table((root / "proc/self/status").read_text())["RssAnon"] << 10


def least_room(groups: Sequence[MemoryCgroup], available_bytes: int, own_bytes: int, reserved_bytes: int) -> Budget:
    """B_pc of a process in the first of `groups`, each inside the next, on a system with `available_bytes`.

    `own_bytes` is the process's anonymous memory.

    A budget of nothing is legal, since a plan may do without page cache.
    """
    rooms = [_Room(available_bytes, None, "MemAvailable"), *_rooms(groups)]
    room = min(rooms, key=lambda room: room.free_bytes)
    if room.free_bytes < reserved_bytes:
        raise _refusal(reserved_bytes, room)
    innermost = next((group for group in groups if group.limit_bytes is not None), None)
    return Budget(
        b_pc_bytes=room.free_bytes - reserved_bytes,
        limit_bytes=room.limit_bytes,
        limited_by=room.limited_by,
        process_bytes=innermost.process_bytes if innermost else own_bytes,
        reserved_bytes=reserved_bytes,
        system_available_bytes=available_bytes,
    )


def _refusal(needed_bytes: int, room: _Room) -> BudgetError:
    return BudgetError(
        f"{needed_bytes:,} bytes of buffers are still to be allocated and {room.limited_by} leaves "
        f"{room.free_bytes:,}; raise that limit by {needed_bytes - room.free_bytes:,} bytes, "
        "or use fewer copy threads or a smaller batch"
    )


def _hard_rooms(root: Path) -> list[_Room]:
    try:
        groups, system = memory_cgroups(root), parse_table((root / "proc/meminfo").read_text())
        swap_bytes = system.get("SwapFree", 0) << 10
        rooms = [_Room((system["MemAvailable"] << 10) + swap_bytes, None, "MemAvailable")]
    except (OSError, KeyError, ValueError):
        return []
    return rooms + [
        _Room(
            group.hard_limit_bytes - group.anonymous_bytes + swap_bytes, group.hard_limit_bytes, group.hard_limit_file
        )
        for group in groups
        if group.hard_limit_bytes is not None
    ]


def _rooms(groups: Sequence[MemoryCgroup]) -> list[_Room]:
    """Never below nothing: memory.high may be exceeded for a while, and usage runs ahead by per-CPU batches."""
    return [
        _Room(max(0, group.limit_bytes - group.needed_bytes), group.limit_bytes, group.limit_file)
        for group in groups
        if group.limit_bytes is not None
    ]

"""Page-cache budget B_pc: what the kernel lets this process keep in the page cache (paper, section "Budget").

Every memory cgroup above a process reclaims memory when it reaches its limit. So the one with the least room decides,
or the system if it has less. Room is the limit minus the memory that stays charged, such as all that the process has
allocated and touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dualblade.errors import BudgetError
from dualblade.linux.cgroups import MemoryCgroup, memory_cgroups
from dualblade.linux.proc import meminfo, own_status


@dataclass(frozen=True)
class Budget:
    """B_pc and its origin.

    `limited_by` is the file of the deciding limit, and `limit_bytes` its value; without a limit it is MemAvailable.
    `process_bytes` is the memory that the innermost cgroup with a limit needs; without one, the process's anonymous
    memory.
    """

    b_pc_bytes: int
    limit_bytes: int | None
    limited_by: str
    process_bytes: int
    system_available_bytes: int


class _Room(NamedTuple):
    free_bytes: int
    limit_bytes: int | None
    limited_by: str


def measure_budget(root: Path = Path("/")) -> Budget:
    """Measure B_pc: after the buffers are touched, before KV files are mapped (mapped memory counts as needed).

    `root` stands in for / in tests.
    """
    return least_room(memory_cgroups(root), meminfo(root)["MemAvailable"], anonymous_bytes(root))


def refuse_unless_free(needed_bytes: int, root: Path = Path("/")) -> None:
    """Refuse an allocation after which the kernel would kill this process.

    Memory that the kernel could reclaim from others or swap out counts as free, unlike in B_pc. Accounts that cannot be
    read refuse nothing. `root` stands in for / in tests.

    Raises:
        BudgetError: a hard limit, or the system, leaves less than `needed_bytes`.
    """
    for room in _hard_rooms(root):
        if room.free_bytes < needed_bytes:
            raise BudgetError(
                f"{needed_bytes:,} bytes of buffers are still to be allocated and {room.limited_by} leaves "
                f"{room.free_bytes:,}; raise that limit by {needed_bytes - room.free_bytes:,} bytes, "
                "or use fewer copy threads or a smaller batch"
            )


def anonymous_bytes(root: Path = Path("/")) -> int:
    """Return the anonymous memory of this process that is in use."""
    return own_status(root)["RssAnon"]


def least_room(groups: Sequence[MemoryCgroup], available_bytes: int, own_bytes: int) -> Budget:
    """Return B_pc of a process in the first of `groups`, each inside the next, on a system with `available_bytes`.

    `own_bytes` is the process's anonymous memory. A budget of 0 is legal: a plan may use no page cache.
    """
    rooms = [_Room(available_bytes, None, "MemAvailable"), *_rooms(groups)]
    room = min(rooms, key=lambda room: room.free_bytes)
    innermost = next((group for group in groups if group.limit_bytes is not None), None)
    return Budget(
        b_pc_bytes=room.free_bytes,
        limit_bytes=room.limit_bytes,
        limited_by=room.limited_by,
        process_bytes=innermost.process_bytes if innermost else own_bytes,
        system_available_bytes=available_bytes,
    )


def _hard_rooms(root: Path) -> list[_Room]:
    try:
        groups, system = memory_cgroups(root), meminfo(root)
        swap_bytes = system.get("SwapFree", 0)
        rooms = [_Room(system["MemAvailable"] + swap_bytes, None, "MemAvailable")]
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
    """Return the room in each limited cgroup; at least 0, since usage may exceed memory.high for a while."""
    return [
        _Room(max(0, group.limit_bytes - group.needed_bytes), group.limit_bytes, group.limit_file)
        for group in groups
        if group.limit_bytes is not None
    ]

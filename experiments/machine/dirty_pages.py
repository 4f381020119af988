"""Limits on a run's dirty pages, beyond which the kernel makes it write back.

A machine with as little memory as the run's budget would hold writers back at vm.dirty_ratio of it, and cgroup v2 does
so group by group (admin-guide/cgroup-v2.rst, Writeback). Version 1 knows the whole machine alone: there a prefill fills
its group with dirty pages, reclaim meets them and makes them active (shrink_folio_list in mm/vmscan.c), and what is
active outlives every scan of the cache, in some runs and not in others. So on version 1 the machine's limits become
the run's while it lasts.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.errors import MachineError
from experiments.machine import environment
from experiments.machine.journal import Journal

VM = Path("/proc/sys/vm")
LIMITS = ("dirty", "dirty_background")
MIN_BYTES = 2 * mmap.PAGESIZE  # what the kernel takes (admin-guide/sysctl/vm.rst)


@contextlib.contextmanager
def held_to_budget(budget_bytes: int, cgroup_version: int, journal: Journal, vm: Path = VM) -> Iterator[dict[str, Any]]:
    """Limit dirty pages to the kernel's shares of `budget_bytes` inside the block; yield who limits them, and to what.

    Raises:
        MachineError: the limits cannot be set, or do not take effect.
    """
    if cgroup_version != 1:
        yield {"by": "the cgroup"}
        return
    limits_bytes = {f"{name}_bytes": max(MIN_BYTES, int(_share(name, vm) * budget_bytes)) for name in LIMITS}
    with contextlib.ExitStack() as stack:
        for name in LIMITS:
            stack.enter_context(journal.undo("write_value", *_before(name, vm)))
        for name, limit_bytes in limits_bytes.items():
            _set(vm / name, limit_bytes)
        yield {"by": "the machine at the budget's shares", **limits_bytes}


def _share(name: str, vm: Path) -> float:
    """Return the limit as a share of available memory. The kernel keeps a share or bytes; the other reads 0."""
    percent = int((vm / f"{name}_ratio").read_text())
    return percent / 100 if percent else int((vm / f"{name}_bytes").read_text()) / environment.available_bytes()


def _before(name: str, vm: Path) -> tuple[str, str]:
    """Return the file and the value that restore a limit: if bytes read 0, the kernel uses the ratio."""
    absolute, ratio = vm / f"{name}_bytes", vm / f"{name}_ratio"
    file = ratio if absolute.read_text().strip() == "0" else absolute
    return str(file), file.read_text().strip()


def _set(file: Path, limit_bytes: int) -> None:
    cure = "set storage.dirty_pages=machine to leave and record it"
    try:
        file.write_text(str(limit_bytes))
    except OSError as error:
        raise MachineError(
            f"{file} cannot be set to {limit_bytes} ({error.strerror}); run as root, or {cure}"
        ) from None
    if int(file.read_text()) != limit_bytes:
        raise MachineError(f"{file} reads {file.read_text().strip()} after {limit_bytes} was written; {cure}")

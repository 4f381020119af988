"""Run a program inside a cgroup: `python -I -S enter_cgroup.py PARENT_PID SIGNAL CGROUP_PROCS|- COMMAND...`.

The program gets SIGNAL, by its number, when the parent dies.

Memory is charged to the cgroup of the process that first touches it, so a process must be in its cgroup before it
becomes the engine. What this interpreter touched is freed at exec. `-I -S` and few imports keep its start at some
15 ms; under them, packages cannot be imported here.
"""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h; kept over exec of a program that is not set-user-ID (man 2 prctl)


def die_with(parent_pid: int, signum: int) -> None:
    """Have the kernel send this process `signum` when its parent dies; exit at once if the parent is dead already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signum))
    if os.getppid() != parent_pid:
        os._exit(1)


def join(procs: str) -> None:
    """Move this process into the cgroup whose cgroup.procs file is `procs`."""
    with open(procs, "w") as file:
        file.write("0")  # the writing process


def main(parent_pid: str, signum: str, procs: str, *command: str) -> None:
    """Become `command`."""
    die_with(int(parent_pid), int(signum))
    if procs != "-":
        join(procs)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])

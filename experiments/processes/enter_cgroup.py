"""Becomes another program inside a cgroup: `python -I -S enter_cgroup.py PARENT_PID SIGNAL CGROUP_PROCS|- COMMAND...`.

The program gets SIGNAL, by its number, when the parent dies.

Pages belong to the group that first touches them, so a process has to be in its group before it is the engine. What
this interpreter touched stays behind at exec. `-I -S` and few imports keep it at some 15 ms.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h; kept over exec of a program that is not set-user-ID (man 2 prctl)


def main(parent_pid: str, signum: str, procs: str, *command: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signum))
    if os.getppid() != int(parent_pid):  # it died before the line above
        sys.exit(1)
    if procs != "-":
        with open(procs, "w") as file:
            file.write("0")  # the writing process
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])

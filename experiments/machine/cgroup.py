"""A fresh memory cgroup for one run, on version 1 or 2 of the interface.

Kernel documentation: admin-guide/cgroup-v1/memory.rst and admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar, Literal

from dualblade.linux.cgroups import CgroupDirectory, MemoryCgroup, read_memory_cgroup
from dualblade.linux.proc import read_table
from experiments.errors import MachineError

KILL_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class RunCgroup:
    """The memory cgroup of one run, by its directory."""

    path: Path

    version: ClassVar[Literal[1, 2]]
    peak_file: ClassVar[str]
    swap_off: ClassVar[tuple[str, str]]
    oom_file: ClassVar[str]
    uncharge_file: ClassVar[str | None] = None

    @property
    def limit_file(self) -> str:
        return self._directory.limit_file

    @property
    def procs(self) -> Path:
        return self.path / "cgroup.procs"

    def create(self) -> None:
        """Make the group without swap: swapped pages would not count against the limit."""
        self.path.mkdir()
        name, value = self.swap_off
        if (self.path / name).exists():  # absent where the kernel has no swap
            (self.path / name).write_text(value)

    def set_limit(self, limit_bytes: int) -> int:
        """Set the limit and return the value in force, which is in whole pages."""
        (self.path / self.limit_file).write_text(str(limit_bytes))
        in_force = int(self._read(self.limit_file))
        if in_force != limit_bytes // mmap.PAGESIZE * mmap.PAGESIZE:
            raise MachineError(
                f"{self.path / self.limit_file} reads {in_force} after {limit_bytes} was written, so memory cannot be "
                "limited here; use another cgroup hierarchy"
            )
        return in_force

    def process_bytes(self) -> int:
        """Charged memory that a cache drop cannot take: anonymous memory and the kernel's own."""
        return self._account().process_bytes

    def library_bytes(self) -> int:
        """Page cache of mapped programs and libraries: no cache drop takes it while they run."""
        return self._account().mapped_bytes

    def peak_bytes(self) -> int | None:
        """Highest charge so far; None if the kernel does not report it (version 2 before Linux 5.19)."""
        return int(self._read(self.peak_file)) if (self.path / self.peak_file).exists() else None

    def oom_kills(self) -> int:
        return read_table(self.path / self.oom_file).get("oom_kill", 0)

    def stat(self) -> dict[str, int]:
        return read_table(self.path / "memory.stat")

    def destroy(self) -> None:
        """Kill the processes left in the group and remove it; a missing group is no error."""
        if not self.path.exists():
            return
        deadline = time.monotonic() + KILL_TIMEOUT_S
        self._kill_all(deadline)
        if self.uncharge_file:
            (self.path / self.uncharge_file).write_text("0")
        while not self._removed():  # a process that is just dying still holds its group
            if time.monotonic() > deadline:
                raise MachineError(f"the cgroup {self.path} stays busy; remove it by rmdir when its processes are gone")
            time.sleep(0.01)

    def _removed(self) -> bool:
        try:
            self.path.rmdir()
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            if error.errno != errno.ENOENT:
                raise
        return True

    def _kill_all(self, deadline: float) -> None:
        while pids := self.procs.read_text().split():
            if time.monotonic() > deadline:
                raise MachineError(f"processes {', '.join(pids)} in {self.path} do not die; end them by hand")
            for pid in pids:
                _kill(int(pid))
            time.sleep(0.01)

    def _read(self, name: str) -> str:
        return (self.path / name).read_text()

    def _account(self) -> MemoryCgroup:
        return read_memory_cgroup(self._directory)

    @property
    def _directory(self) -> CgroupDirectory:
        return CgroupDirectory(self.version, PurePosixPath(self.path))


class CgroupV1(RunCgroup):
    version = 1
    peak_file = "memory.max_usage_in_bytes"
    swap_off = ("memory.swappiness", "0")
    oom_file = "memory.oom_control"
    uncharge_file = "memory.force_empty"  # a removed group lives on as long as page cache is charged to it


class CgroupV2(RunCgroup):
    version = 2
    peak_file = "memory.peak"
    swap_off = ("memory.swap.max", "0")
    oom_file = "memory.events"


VERSIONS: dict[int, type[RunCgroup]] = {cls.version: cls for cls in (CgroupV1, CgroupV2)}


def destroy(version: int, path: str) -> None:
    """Remove the group that the journal describes by plain data."""
    VERSIONS[version](Path(path)).destroy()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)

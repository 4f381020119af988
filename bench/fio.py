"""fio on a file of ours: sequential direct I/O by io_uring, the rate it reached."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.errors import MachineError
from experiments.machine.huge_pages import HUGE_PAGE_BYTES

if TYPE_CHECKING:
    from dualblade.paths.ring import Op

TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Load:
    """A job for fio on `size_bytes` of a file: `jobs` threads, each on its own part, `depth` commands deep."""

    size_bytes: int
    chunk_bytes: int
    jobs: int
    depth: int
    passes: int = 1

    def __str__(self) -> str:
        return f"fio with {self.jobs} job{'s' * (self.jobs > 1)} of depth {self.depth}"

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers of all jobs; each job aligns its buffers and rounds them up to pages of 2 MiB."""
        return self.jobs * (self.depth * self.chunk_bytes + 2 * HUGE_PAGE_BYTES)

    def arguments(self, op: Op, path: Path, *, huge_pages: bool) -> list[str]:
        part_bytes = self.size_bytes // self.jobs
        return [
            "fio",
            "--name=bench",
            f"--filename={path}",
            f"--rw={op}",
            "--ioengine=io_uring",
            "--direct=1",
            f"--bs={self.chunk_bytes}",
            f"--iodepth={self.depth}",
            f"--size={part_bytes}",
            f"--loops={self.passes}",
            f"--numjobs={self.jobs}",
            f"--offset_increment={part_bytes}",
            *(["--iomem=mmaphuge", f"--hugepage-size={HUGE_PAGE_BYTES}"] if huge_pages else ["--iomem=malloc"]),
            "--thread",
            "--group_reporting",
            "--invalidate=0",
            "--fallocate=none",
            "--output-format=json",
        ]


def version() -> str:
    """Return fio's name and version.

    Raises:
        MachineError: there is no fio.
    """
    if shutil.which("fio") is None:
        raise MachineError(
            "fio is not installed, so there is nothing to hold the direct path against; run `make setup`"
        )
    return subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def rate_gb_per_s(load: Load, op: Op, path: Path, *, huge_pages: bool) -> float:
    """Run fio and return the rate of all its jobs together.

    Raises:
        MachineError: fio failed.
    """
    command = load.arguments(op, path, huge_pages=huge_pages)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise MachineError(
            f"fio ended with code {done.returncode} ({said}); try its command by hand: {' '.join(command)}"
        )
    return parse_rate(done.stdout, op)


def parse_rate(output: str, op: Op) -> float:
    """Rate in fio's JSON report, which warnings may precede."""
    report: dict[str, Any] = json.loads(output[output.index("{") :])
    return float(report["jobs"][0][op]["bw_bytes"]) / 1e9

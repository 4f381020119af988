"""Writes raw traces as the tracers do, for tests only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from traces.decode import header

VDA = {"vda": {"dev": 254 << 20, "lba_bytes": 512, "queue_of_cpu": {"0": 0, "1": 1}}}


class Request(NamedTuple):
    """A request of the block layer on vda."""

    issue_ns: int
    complete_ns: int
    sector: int
    size_bytes: int = 4096
    rwbs: str = "R"
    cpu: int = 0
    error: int = 0

    @property
    def line(self) -> str:
        fields = (self.issue_ns, self.complete_ns, 254 << 20, self.cpu, self.sector, self.size_bytes, self.error)
        return ",".join(map(str, fields)) + f",{self.rwbs}"


def trailer(counted: int, completed: int | None = None, skipped: int | None = None) -> list[str]:
    """What bpftrace prints at its end, the disks' own count, and the kernel's of probes that it skipped."""
    counts = {"completed": completed, "skipped": skipped}
    return ["", f"@events: {counted}", *(f"#{name} {n}" for name, n in counts.items() if n is not None)]


def write_trace(path: Path, lines: Iterable[str], source: str = "block_requests") -> Path:
    """A raw trace of these lines."""
    start = [f"#{' ' * 61}"] * 3
    path.write_bytes(header(source, VDA) + "\n".join(["Attaching 6 probes...", "READY", *start, *lines, ""]).encode())
    return path


def write_requests(path: Path, requests: Sequence[Request]) -> Path:
    """A whole raw trace of requests, in the order of their completion."""
    ordered = sorted(requests, key=lambda request: request.complete_ns)
    return write_trace(path, [*(request.line for request in ordered), *trailer(len(requests), len(requests))])

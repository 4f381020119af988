"""Tables of names and numbers in /proc and in cgroup files (proc(5))."""

from __future__ import annotations

from pathlib import Path


def parse_table(text: str) -> dict[str, int]:
    """Numbers by name, from lines like `anon 4096` or `MemFree: 12 kB`; kB become bytes, other lines are ignored."""
    rows = (line.split() for line in text.splitlines())
    return {
        row[0].rstrip(":"): int(row[1]) << (10 if row[2:] == ["kB"] else 0)
        for row in rows
        if len(row) > 1 and row[1].isdigit()
    }


def read_table(path: Path) -> dict[str, int]:
    """The table in a file; see `parse_table`."""
    return parse_table(path.read_text())


def meminfo(root: Path = Path("/")) -> dict[str, int]:
    """/proc/meminfo: bytes, and numbers of huge pages. `root` stands in for / in tests."""
    return read_table(root / "proc/meminfo")


def own_status(root: Path = Path("/")) -> dict[str, int]:
    """/proc/self/status: memory of this process in bytes. `root` stands in for / in tests."""
    return read_table(root / "proc/self/status")

"""Mounts of this process, from /proc/self/mountinfo (man 5 proc)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

# In memory: files are page cache and nothing else. They take O_DIRECT since Linux 6.6, and ignore it.
MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs", "devtmpfs"}


@dataclass(frozen=True)
class Mount:
    """`root` is the folder within the file system that is seen at `point`; `device` is its major:minor."""

    device: str
    root: Path
    point: Path
    options: str
    fs_type: str
    source: str
    super_options: str


def read_mounts(mountinfo: Path = Path("/proc/self/mountinfo")) -> list[Mount]:
    """All mounts, in mount order."""
    return [_parse(line) for line in mountinfo.read_text().splitlines()]


def mount_of(path: Path, mounts: list[Mount]) -> Mount:
    """The mount that a path lies on: the longest mount point above it, and of equal ones the topmost."""
    above = [mount for mount in mounts if path.resolve().is_relative_to(mount.point)]
    return max(enumerate(above), key=lambda item: (len(item[1].point.parts), item[0]))[1]


def file_system_of(path: Path) -> str:
    """Return the kind of a path's file system, such as "ext4"; "unknown" in a chroot without a visible root mount."""
    mounts = read_mounts()
    shown = any(path.resolve().is_relative_to(mount.point) for mount in mounts)
    return mount_of(path, mounts).fs_type if shown else "unknown"


def _parse(line: str) -> Mount:
    fields, _, tail = line.partition(" - ")
    _, _, device, root, point, options, *_ = fields.split(" ")
    fs_type, source, super_options = tail.split(" ", 2)
    return Mount(device, Path(_unescape(root)), Path(_unescape(point)), options, fs_type, source, super_options)


def _unescape(text: str) -> str:
    """Return a path with its escaped blanks (\\040 and others) restored."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)

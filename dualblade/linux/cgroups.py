"""Memory cgroups of this process, v1 and v2: where they are mounted, what they allow and what is charged to them.

The hierarchy a process sees may be a subtree (a container's bind mount or cgroup namespace), and v1 and v2 may be
mounted side by side (hybrid) with the memory controller in either.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from dualblade.linux.mounts import Mount, read_mounts
from dualblade.linux.proc import read_table

# Above every real limit: v2 writes "max", v1 the largest page count times the page size, which differs by machine.
UNLIMITED_BYTES = 1 << 62


class CgroupDirectory(NamedTuple):
    """A cgroup of the hierarchy that has the memory controller."""

    version: Literal[1, 2]
    path: PurePosixPath

    @property
    def limit_file(self) -> str:
        return "memory.limit_in_bytes" if self.version == 1 else "memory.max"


@dataclass(frozen=True)
class MemoryCgroup:
    """One memory cgroup as the kernel accounts for it, its descendants included.

    `process_bytes` is anonymous and kernel memory. `mapped_bytes` is page cache that processes map: programs and
    libraries. `reclaimable_bytes` is page cache that makes room for new pages. Beyond `hard_limit_bytes` the kernel
    kills; beyond a lower `limit_bytes` it reclaims.

    Page cache on the file LRU lists is reclaimable, except what is mapped. The lists hold clean and dirty pages (a
    dirty page can go after its writeback), but no shared memory and no locked pages (mm/unevictable-lru.rst). A mapped
    page is activated whenever reclaim finds it referenced (folio_check_references in mm/vmscan.c), so it outlives KV
    that streams past. The kernel's counter of mapped pages includes shared memory, which is on no file list.
    """

    limit_file: str
    limit_bytes: int | None
    usage_bytes: int
    reclaimable_bytes: int
    process_bytes: int
    hard_limit_bytes: int | None = None
    anonymous_bytes: int = 0
    mapped_bytes: int = 0

    @property
    def hard_limit_file(self) -> str:
        return self.limit_file.replace("memory.high", "memory.max")

    @property
    def needed_bytes(self) -> int:
        """Charged bytes that do not change when page cache is added or dropped."""
        return self.usage_bytes - self.reclaimable_bytes


def memory_cgroups(root: Path = Path("/")) -> list[MemoryCgroup]:
    """The process's memory cgroup and its visible ancestors, innermost first. `root` stands in for / in tests.

    v2 has no limit at its root, nor where a parent has not enabled the controller.
    """
    return [
        read_memory_cgroup(directory, root)
        for directory in memory_directories(root)
        if (under(root, directory.path) / directory.limit_file).exists()
    ]


def read_memory_cgroup(directory: CgroupDirectory, root: Path = Path("/")) -> MemoryCgroup:
    """The kernel's account of one memory cgroup. `root` stands in for / in tests."""
    return _READERS[directory.version](directory.path, root)


def memory_directories(root: Path = Path("/")) -> list[CgroupDirectory]:
    """Directories from the process's own cgroup up to the mount point, in the hierarchy of the memory controller."""
    own = parse_own_cgroups((root / "proc/self/cgroup").read_text())
    mounts = read_mounts(root / "proc/self/mountinfo")
    if "memory" in own:
        v1 = [mount for mount in mounts if mount.fs_type == "cgroup" and "memory" in mount.super_options.split(",")]
        return [CgroupDirectory(1, path) for path in _upwards(own["memory"], v1)]
    v2 = [mount for mount in mounts if mount.fs_type == "cgroup2"]
    return [CgroupDirectory(2, path) for path in _upwards(own.get("", PurePosixPath("/")), v2)]


def parse_own_cgroups(text: str) -> dict[str, PurePosixPath]:
    """/proc/self/cgroup -> path by controller; the empty name is cgroup v2 (cgroups(7))."""
    paths = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), PurePosixPath(path)))
    return paths


def locate(path: PurePosixPath, mounts: list[Mount]) -> tuple[PurePosixPath, PurePosixPath] | None:
    """Mount point of a cgroup and its path below it, through the mount that shows most of its ancestors.

    None when no mount shows it: seen from a cgroup namespace that it is not in, its path starts with `/..`.
    """
    for mount in sorted(mounts, key=lambda mount: len(mount.root.parts)):
        if path.is_relative_to(mount.root) and ".." not in path.relative_to(mount.root).parts:
            return PurePosixPath(mount.point), path.relative_to(mount.root)
    return None


def under(root: Path, path: PurePosixPath) -> Path:
    """An absolute path as seen below `root`."""
    return root / path.relative_to("/")


def _upwards(path: PurePosixPath, mounts: list[Mount]) -> list[PurePosixPath]:
    located = locate(path, mounts)
    if located is None:
        return []
    point, inside = located
    return [point / directory for directory in (inside, *inside.parents)]


def _read_v1(directory: PurePosixPath, root: Path) -> MemoryCgroup:
    """admin-guide/cgroup-v1/memory.rst; the values named `total_` include descendants."""
    folder = under(root, directory)
    stat = read_table(folder / "memory.stat")
    mapped_bytes = max(0, stat["total_mapped_file"] - stat["total_shmem"])
    kernel = folder / "memory.kmem.usage_in_bytes"  # absent without CONFIG_MEMCG_KMEM
    limit_bytes = _finite(_limit_bytes(folder / "memory.limit_in_bytes"))
    return MemoryCgroup(
        limit_file=str(directory / "memory.limit_in_bytes"),
        limit_bytes=limit_bytes,
        hard_limit_bytes=limit_bytes,
        anonymous_bytes=stat["total_rss"],
        usage_bytes=int((folder / "memory.usage_in_bytes").read_text()),
        reclaimable_bytes=max(0, stat["total_active_file"] + stat["total_inactive_file"] - mapped_bytes),
        mapped_bytes=mapped_bytes,
        process_bytes=stat["total_rss"] + (int(kernel.read_text()) if kernel.exists() else 0),
    )


def _read_v2(directory: PurePosixPath, root: Path) -> MemoryCgroup:
    """admin-guide/cgroup-v2.rst. memory.high limits like memory.max: beyond it the kernel reclaims page cache first."""
    folder = under(root, directory)
    stat = read_table(folder / "memory.stat")
    mapped_bytes = max(0, stat["file_mapped"] - stat["shmem"])
    limits = [(_limit_bytes(folder / name), name) for name in ("memory.max", "memory.high")]
    limit_bytes, name = min(limits)
    # `kernel` is the sum of the others since Linux 5.18.
    parts = ("slab", "kernel_stack", "pagetables", "percpu", "vmalloc")
    return MemoryCgroup(
        limit_file=str(directory / name),
        limit_bytes=_finite(limit_bytes),
        hard_limit_bytes=_finite(limits[0][0]),
        anonymous_bytes=stat["anon"],
        usage_bytes=int((folder / "memory.current").read_text()),
        reclaimable_bytes=max(0, stat["active_file"] + stat["inactive_file"] - mapped_bytes),
        mapped_bytes=mapped_bytes,
        process_bytes=stat["anon"] + stat.get("kernel", sum(stat.get(part, 0) for part in parts)),
    )


_READERS = {1: _read_v1, 2: _read_v2}


def _limit_bytes(file: Path) -> int:
    text = file.read_text().strip()
    return UNLIMITED_BYTES if text == "max" else int(text)


def _finite(limit_bytes: int) -> int | None:
    return limit_bytes if limit_bytes < UNLIMITED_BYTES else None

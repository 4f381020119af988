"""The doctor's experiments on this machine's own kernel, against other ways to ask it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from dualblade.doctor import probes
from dualblade.linux.cgroups import CgroupDirectory, memory_directories


def test_a_limit_is_tried_and_nothing_stays(make_cgroup: Callable[[int], Path]) -> None:
    parent = make_cgroup(256 << 20)
    version = memory_directories()[0].version
    assert probes.takes_a_limit(CgroupDirectory(version, PurePosixPath(parent)))
    assert not [child for child in parent.iterdir() if child.is_dir()]


def test_direct_io_leaves_no_page_and_no_file(disk_path: Path) -> None:
    assert probes.left_by_direct_io(disk_path) == 0
    assert not list(disk_path.iterdir())


def test_passthrough_agrees_with_the_kernel_version() -> None:
    """IORING_OP_URING_CMD came with Linux 5.19."""
    version = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    assert probes.has_passthrough() == (version >= (5, 19))


def test_cachestat_agrees_with_the_kernel_version() -> None:
    """cachestat(2) came with Linux 6.5."""
    version = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    assert probes.has_cachestat() == (version >= (6, 5))

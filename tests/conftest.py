"""What tests share: real cgroups and a folder on a real disk, each skipping with its reason where there is none."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.load_profile("default")

CGROUP_V1 = Path("/sys/fs/cgroup/memory")
CGROUP_V2 = Path("/sys/fs/cgroup")

MakeCgroup = Callable[[int, "Path | None"], Path]


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """An empty folder in the checkout that takes O_DIRECT and gives its pages back (tmpfs does neither)."""
    folder = Path(tempfile.mkdtemp(prefix=".test-", dir=Path(__file__).parents[1]))
    try:
        probe = folder / "probe"
        probe.touch()
        try:
            os.close(os.open(probe, os.O_RDONLY | os.O_DIRECT))
        except OSError as error:
            pytest.skip(f"the checkout's file system refuses O_DIRECT: {error.strerror}")
        probe.unlink()
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def make_cgroup() -> Iterator[MakeCgroup]:
    """`make_cgroup(limit_bytes, parent)` makes a memory cgroup of v1 or v2, without swap; all go when the test ends."""
    base = _memory_base()
    made: list[Path] = []

    def make(limit_bytes: int, parent: Path | None = None) -> Path:
        folder = (parent or base) / f"dualblade-test-{os.getpid()}-{len(made)}"
        folder.mkdir()
        made.append(folder)
        settings = {"memory.swappiness": 0, "memory.limit_in_bytes": limit_bytes}
        if base == CGROUP_V2:
            (folder.parent / "cgroup.subtree_control").write_text("+memory")
            settings = {"memory.swap.max": 0, "memory.max": limit_bytes}
        for name, value in settings.items():
            (folder / name).write_text(str(value))
        return folder

    yield make
    for folder in reversed(made):
        _remove(folder)


def _memory_base() -> Path:
    base = CGROUP_V1 if CGROUP_V1.is_dir() else CGROUP_V2
    controllers = base / "cgroup.controllers"
    if base == CGROUP_V2 and not (controllers.exists() and "memory" in controllers.read_text().split()):
        pytest.skip("no memory controller is mounted in its usual place")
    if not os.access(base, os.W_OK):
        pytest.skip(f"cgroups cannot be made in {base} without root")
    return base


def _remove(folder: Path) -> None:
    """Kill what is left inside, and wait for it to leave: a cgroup with a dying process is busy."""
    while folder.is_dir():
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            if (folder / "memory.force_empty").exists():
                (folder / "memory.force_empty").write_text("0")
            folder.rmdir()
            return
        time.sleep(0.01)

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
from typing import Any

import hypothesis
import pytest

from experiments.errors import MachineError
from experiments.guest import virtual_machine
from experiments.guest.emulated_ssd import EmulatedSsd
from experiments.guest.kernel import CACHE
from experiments.guest.testbed import Guest
from experiments.machine.journal import Journal, exclusive

os.environ["HF_HUB_OFFLINE"] = "1"

# Programs that tests start must get requests to end, also if the tests themselves were started by nohup.
for name in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(name) is signal.SIG_IGN:
        signal.signal(name, signal.SIG_DFL)

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.load_profile("default")

CGROUP_V1 = Path("/sys/fs/cgroup/memory")
CGROUP_V2 = Path("/sys/fs/cgroup")

MakeCgroup = Callable[[int, "Path | None"], Path]

# Folders whose tests share one guest, or this machine's disks, page cache and cgroups: one worker runs each group.
# Two files boot guests of their own, and are a group each.
GROUPS = {
    "tests/system/guest/test_nvme_polling.py": "polling guest",
    "tests/system/guest/test_unprivileged.py": "unprivileged guest",
    "tests/system/guest/": "guest",
    "tests/system/engine/": "machine",
    "tests/system/harness/": "machine",
    "tests/system/traces/": "machine",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Spread the tests over workers by group and by file; within these they run in order."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((GROUPS[folder] for folder in GROUPS if nodeid.startswith(folder)), nodeid.partition("::")[0])

    return ByGroup(config, log)


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


# A block of each kind that cannot be read or written, far into the raw range.
BAD_READ_LBA, BAD_WRITE_LBA = 2_000_000, 2_010_000
GUEST_SSDS = {
    "ssd_a": EmulatedSsd("DUALBLADE-A", 1024, 512, lba_bytes=4096, mdts_kib=512, queue_pairs=8),
    "ssd_b": EmulatedSsd(
        *("DUALBLADE-B", 1024, 512),
        lba_bytes=512,
        mdts_kib=16,
        queue_pairs=4,
        read_error_lbas=(BAD_READ_LBA,),
        write_error_lbas=(BAD_WRITE_LBA,),
    ),
    "ssd_spare": EmulatedSsd(
        "DUALBLADE-SPARE", 128, 16, lba_bytes=4096, mdts_kib=128, queue_pairs=2
    ),  # to be pulled out
}


@pytest.fixture(scope="session")
def guest() -> Iterator[Guest]:
    """One booted guest for all tests: `guest.run([...])` gives a command's status and output, as root.

    Its two SSDs are not throttled, differ in LBA size and MDTS, and B has bad blocks. Partition 1 of each is mounted
    under /run/dualblade/NAME, partition 2 is raw. The checkout lies at the same path as here, read-only.
    """
    if missing := virtual_machine.missing_tool():
        pytest.skip(f"no guest can be booted: {missing}")
    with contextlib.ExitStack() as stack:
        CACHE.mkdir(parents=True, exist_ok=True)
        stack.enter_context(exclusive(CACHE / "test.lock"))  # what another run of the tests has there is not left over
        journal = Journal(CACHE / "test-journal.json")
        journal.clear()
        try:
            machine = stack.enter_context(
                virtual_machine.running(virtual_machine.Hardware(4, 3072, GUEST_SSDS), journal)
            )
        except MachineError as error:
            pytest.skip(str(error))
        guest = Guest(machine)
        yield guest
        guest.end()


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

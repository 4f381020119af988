"""The cgroup of a run against the kernel: what it charges, what it kills, and that it goes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.machine import caches
from experiments.machine.cgroup import RunCgroup
from experiments.machine.cgroup_tree import fresh_cgroup
from experiments.machine.journal import Journal
from experiments.processes.engine import enter
from tests.support.harness_process import needs_root_and_cgroup

pytestmark = needs_root_and_cgroup()

MIB = 1 << 20


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RunCgroup]:
    with fresh_cgroup(Journal(tmp_path / "journal.json")) as group:
        yield group


def start(group: RunCgroup, code: str) -> subprocess.Popen[str]:
    """Python inside the group, having said a line."""
    command = [*enter(group.procs), sys.executable, "-c", code]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def hold(mib: int) -> str:
    return f"data = bytearray(b'x') * ({mib} << 20); print('ready', flush=True); input()"


def test_a_process_is_in_its_group_before_it_is_another_program(group: RunCgroup) -> None:
    process = start(group, hold(1))
    assert group.procs.read_text().split() == [str(process.pid)]


def test_what_a_process_needs_is_its_anonymous_memory(group: RunCgroup) -> None:
    before = group.process_bytes()
    start(group, hold(200))
    held = group.process_bytes() - before
    assert 200 * MIB < held < 230 * MIB


def test_page_cache_is_not_what_a_process_needs(group: RunCgroup, disk_path: Path) -> None:
    file = disk_path / "file"
    code = f"f = open({str(file)!r}, 'wb'); f.write(bytes(100 << 20)); f.flush(); print('ready', flush=True); input()"
    start(group, code)
    assert group.stat()["file" if group.version == 2 else "cache"] >= 100 * MIB
    assert group.process_bytes() < 40 * MIB  # the interpreter, and the kernel's index of the cached pages


def test_what_a_process_maps_outlives_a_cache_drop_and_is_told_apart(group: RunCgroup, disk_path: Path) -> None:
    file = disk_path / "library"
    file.write_bytes(bytes(50 * MIB))
    caches.drop_caches(disk_path)
    mapped = f"m = mmap.mmap(os.open({str(file)!r}, os.O_RDWR), 0); sum(m[::4096]); print('ready', flush=True); input()"
    start(group, f"import mmap, os; {mapped}")
    before_bytes = group.process_bytes()
    caches.drop_caches(disk_path)
    assert 50 * MIB <= group.library_bytes() < 70 * MIB
    assert group.process_bytes() == pytest.approx(before_bytes, abs=4 * MIB)


def test_the_limit_is_read_back_in_whole_pages(group: RunCgroup) -> None:
    assert group.set_limit(64 * MIB + 5000) == 64 * MIB + 4096


def test_a_process_beyond_the_limit_is_killed_and_counted(group: RunCgroup) -> None:
    group.set_limit(64 * MIB)
    assert group.oom_kills() == 0
    process = start(group, hold(200))
    assert process.wait(30) == -9
    assert group.oom_kills() == 1


def test_the_peak_is_what_was_charged_at_most(group: RunCgroup) -> None:
    start(group, "data = bytearray(b'x') * (200 << 20); del data; print('ready', flush=True); input()")
    peak_bytes = group.peak_bytes()
    assert peak_bytes is None or peak_bytes > 200 * MIB
    assert group.process_bytes() < 100 * MIB


def test_a_group_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    with fresh_cgroup(Journal(tmp_path / "journal.json")) as group:
        process = start(group, "import os; os.fork(); print('ready', flush=True); import time; time.sleep(60)")
        time.sleep(0.1)
        assert len(group.procs.read_text().split()) == 2
    assert not group.path.exists()
    assert process.wait(10) == -9


def test_a_group_that_is_gone_is_destroyed_in_peace(group: RunCgroup) -> None:
    group.destroy()
    group.destroy()
    assert not group.path.exists()

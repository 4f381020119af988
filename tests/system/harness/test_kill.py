"""A harness that ends at any moment, in any way, leaves nothing that the next start does not clear."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dualblade.config.variants import VARIANTS
from dualblade.linux.block_device import backing_device
from dualblade.linux.mounts import mount_of, read_mounts
from experiments.machine.cgroup_tree import find_parent
from experiments.machine.dirty_pages import LIMITS, VM
from tests.support.harness_process import Harness, needs_root_and_cgroup

pytestmark = needs_root_and_cgroup()

WORKING = "model.weights=work:60"
NEXT = ["memory_gb=5"]
LONGER = ["storage.read_ahead_kb=64", "budget_ratio=0.6", "model.n_layers=8", "decode_iterations=8"]


@pytest.fixture
def harness(disk_path: Path) -> Iterator[Harness]:
    harness = Harness(disk_path)
    yield harness
    harness.clear()


def wait_until_working(harness: Harness, process: subprocess.Popen[str]) -> None:
    """The engine's file is in the scratch folder, and the engine has been told to go."""
    deadline = time.monotonic() + 60
    while not list(harness.folder.glob("kv/*/kv")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.3)


def processes_of(harness: Harness) -> list[str]:
    """Engine and library holder: what runs with the harness's current folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended in the meantime
            if (process / "cwd").readlink() == harness.folder:
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found


def wait_until_gone(harness: Harness) -> None:
    """Nothing that a harness started outlives it."""
    deadline = time.monotonic() + 10
    while running := processes_of(harness):
        assert time.monotonic() < deadline, running
        time.sleep(0.02)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_request_to_end_undoes_everything_at_once(harness: Harness, name: str) -> None:
    process = harness.start(WORKING)
    wait_until_working(harness, process)
    process.send_signal(signal.Signals[name])
    _, err = process.communicate(timeout=30)
    assert process.returncode not in (0, None)
    assert "Traceback" not in err
    assert harness.left_behind() == []
    assert processes_of(harness) == []
    assert harness.records() == []


def test_what_a_killed_harness_leaves_is_cleared_by_the_next(harness: Harness) -> None:
    process = harness.start(WORKING)
    wait_until_working(harness, process)
    process.kill()
    process.communicate()
    assert len(harness.left_behind()) == 3  # cgroup, scratch folder, half result
    done = harness.run(*NEXT)
    assert done.returncode == 0, done.stderr
    assert harness.left_behind() == []
    assert not harness.only_record().failed


def test_the_engine_dies_with_a_killed_harness(harness: Harness) -> None:
    process = harness.start(WORKING)
    wait_until_working(harness, process)
    assert len(processes_of(harness)) == 3  # the harness, the library holder and the engine
    process.kill()
    process.communicate()
    wait_until_gone(harness)


def test_readahead_is_set_for_the_run_and_back_after_a_killed_harness(harness: Harness) -> None:
    device = backing_device(mount_of(harness.folder, read_mounts()))
    if device is None:
        pytest.skip("no block device backs the checkout")
    before = device.read_ahead.read_text()
    wanted = "64" if before.strip() != "64" else "32"
    process = harness.start(WORKING, read_ahead_kb=wanted)
    wait_until_working(harness, process)
    assert device.read_ahead.read_text().strip() == wanted
    process.kill()
    process.communicate()
    assert device.read_ahead.read_text().strip() == wanted
    harness.run(*NEXT)
    assert device.read_ahead.read_text() == before


def test_dirty_limits_are_back_after_a_killed_harness(harness: Harness) -> None:
    version, _ = find_parent()
    if version != 1:
        pytest.skip("cgroup v2 holds dirty pages back group by group: no limit of the machine is changed")
    settings = [VM / f"{name}_{unit}" for name in LIMITS for unit in ("ratio", "bytes")]
    before = [file.read_text() for file in settings]
    process = harness.start(WORKING)
    wait_until_working(harness, process)
    assert [file.read_text() for file in settings] != before
    process.kill()
    process.communicate()
    assert harness.run(*NEXT).returncode == 0
    assert [file.read_text() for file in settings] == before


def test_killed_at_any_moment(harness: Harness) -> None:
    moments = random.Random(2604)
    for _ in range(8):
        process = harness.start("model.weights=work:0.3")
        time.sleep(moments.uniform(0.2, 2.0))
        process.kill()
        process.communicate()
    done = harness.run(*NEXT)
    assert done.returncode == 0, done.stderr
    assert harness.left_behind() == []
    assert processes_of(harness) == []
    assert not any(record.failed for record in harness.records())


def test_a_real_run_killed_at_any_moment_leaves_nothing(harness: Harness) -> None:
    """From the start of Python to the end of decode, in every variant; a run takes as long as the first one did."""
    device = backing_device(mount_of(harness.folder, read_mounts()))
    before = device.read_ahead.read_text() if device else ""
    chance = random.Random(2026)
    start = time.monotonic()
    done = harness.run(*LONGER, real=True)
    assert done.returncode == 0, done.stderr
    run_s = time.monotonic() - start
    for turn, variant in enumerate(VARIANTS):
        process = harness.start(*LONGER, f"variant={variant}", f"repetition={turn + 1}", real=True)
        time.sleep(chance.uniform(0.2, 1.0) * run_s)
        process.send_signal(chance.choice([signal.SIGKILL, signal.SIGTERM]))
        process.communicate()
    wait_until_gone(harness)
    done = harness.run(*LONGER, "repetition=9", real=True)
    assert done.returncode == 0, done.stderr
    assert harness.left_behind() == []
    assert not any(record.failed for record in harness.records())
    assert not device or device.read_ahead.read_text() == before


def test_two_harnesses_do_not_measure_at_once(harness: Harness) -> None:
    first = harness.start(WORKING)
    wait_until_working(harness, first)
    second = harness.run(*NEXT)
    first.terminate()
    first.communicate()
    assert second.returncode == 1
    assert f"another harness, process {first.pid}" in second.stderr
    assert harness.records() == []

"""The I/O paths by themselves: measured by fio on files and a loop device of ours, in the mode that was asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from pathlib import Path

import pytest

from dualblade.errors import StorageError
from dualblade.units import MIB
from experiments.io_paths import io_target
from experiments.io_paths.io_run import IoRun
from experiments.machine.host import Host
from experiments.machine.journal import Journal
from experiments.points.io_point import IoPoint
from experiments.points.sweep import compose_points
from experiments.results_folder import ResultsFolder
from tests.support.harness_process import Harness, needs_root_and_cgroup
from tests.support.loop_image import on_loop

pytestmark = needs_root_and_cgroup()

SMALL = ["+experiment=io_paths", "repetition=0", "io.size_mib=16", "io.block_kib=[64]", "io.queue_depths=[1,8]"]


@pytest.fixture
def harness(disk_path: Path) -> Harness:
    return Harness(disk_path)


def loops_over(folder: Path) -> list[str]:
    files = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            files.append(backing.read_text().strip())
    return [file for file in files if file.startswith(str(folder))]


@pytest.mark.parametrize("op", ["read", "write"])
def test_each_path_is_measured_over_the_whole_grid(harness: Harness, op: str) -> None:
    done = harness.run(*SMALL, f"io.op={op}", "io.path=ext4_buffered,ext4_direct,block_direct", "-m")
    assert done.returncode == 0, done.stderr
    records = list(harness.results.records())
    assert {record.folder.parts[-2].split("-")[0] for record in records} == {
        "ext4_buffered",
        "ext4_direct",
        "block_direct",
    }
    for record in records:
        cells = record.result["cells"]
        assert [(cell["request_bytes"], cell["queue_depth"]) for cell in cells] == [(65536, 1), (65536, 8)]
        for cell in cells:
            assert cell["bytes"] == 16 << 20 and cell["requests"] == 256
            assert cell["bytes_per_s"] == pytest.approx(cell["bytes"] / cell["seconds"], rel=0.2)
            assert cell["latency_us"]["p50"] <= cell["latency_us"]["p99"]
    assert harness.left_behind() == [] and loops_over(harness.folder) == []
    assert "3 done (0 measured now)" in harness.run(*SMALL, f"io.op={op}", "-m").stdout


def test_a_direct_path_that_is_not_direct_fails(disk_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(disk_path)
    (config,) = compose_points([*SMALL, "io.path=ext4_buffered"])
    point, journal, results = (
        IoPoint.from_config(config),
        Journal(disk_path / "journal.json"),
        ResultsFolder(Path("results")),
    )

    @contextlib.contextmanager
    def mislabelled(*arguments: object) -> object:
        with opened(*arguments) as target:
            yield dataclasses.replace(target, cached=False)

    opened = io_target.opened
    monkeypatch.setattr(io_target, "opened", mislabelled)
    with results.workspace("io_paths", point, journal) as workspace, pytest.raises(StorageError, match="not direct"):
        IoRun(point, workspace, journal, lambda event: None, Host()).execute()


@pytest.mark.parametrize("op", ["read", "write"])
def test_the_block_device_that_the_storage_names_is_the_one_measured(harness: Harness, op: str) -> None:
    image = harness.folder / "image"
    image.write_bytes(before := os.urandom(20 * MIB))
    with on_loop(image) as device:
        named = ["storage=block", f"storage.block_device={device}", "storage.first_lba=256"]
        done = harness.run(*SMALL, *named, f"storage.serial={image}", "io.path=block_direct", f"io.op={op}", "-m")
        refused = harness.run(*SMALL, *named, "storage.serial=another", "io.path=block_direct", f"io.op={op}", "-m")
    assert done.returncode == 0, done.stderr
    (record,) = [record for record in harness.records() if not record.failed]
    assert record.result["target"] == "a block device, O_DIRECT"
    after = image.read_bytes()
    assert (after[:MIB], after[17 * MIB :]) == (before[:MIB], before[17 * MIB :])
    assert not any(after[MIB : 17 * MIB]), "a loop device punches holes for what is discarded"
    assert "'another' was asked for; nothing was written" in refused.stderr


def test_request_sizes_of_part_of_a_block_are_one_sentence(harness: Harness) -> None:
    done = harness.run(*SMALL, "io.path=block_direct", "io.block_kib=[2,4]", "-m")
    assert "io.block_kib=[2] is not of whole blocks of a loop device over a file" in done.stderr
    assert "fio" not in done.stderr and harness.left_behind() == []


def test_a_killed_harness_leaves_no_loop_device_to_the_next(harness: Harness) -> None:
    process = harness.start(*SMALL, "io.path=block_direct", "io.size_mib=64", "-m")
    while not loops_over(harness.folder):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert harness.run(*SMALL, "io.path=ext4_direct", "-m").returncode == 0
    assert harness.left_behind() == [] and loops_over(harness.folder) == []

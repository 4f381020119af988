"""The guest: both emulated SSDs are there as described, and what it is asked for is answered."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from experiments.errors import RunError
from experiments.guest import virtual_machine
from experiments.guest.kernel import CACHE
from experiments.guest.testbed import Guest, GuestTestbed
from experiments.machine.journal import Journal
from experiments.points.io_point import IoPoint
from experiments.points.point import Point, Settings
from experiments.points.sweep import compose_points
from experiments.results_folder import ResultsFolder

T = TypeVar("T")
VARIANTS = ("baseline", "cachepolicy_only", "nvme_direct_only", "dual_blade")
TINY = (
    "model.n_layers=8",
    "workload.prompt_tokens=256",
    "scale=32",
    "decode_iterations=2",
    "device=host_no_compute",
    "budget_ratio=0.6",
)
SSDS = {"ssd_a": "multigen", "ssd_b": "classic"}  # and the kernel's LRU with each


def test_ssds_are_as_described(guest: Guest) -> None:
    """Serial, LBA size, MDTS and throttle-free capacity as the guest's own kernel reads them from the device."""
    for name, ssd in guest.machine.hardware.ssds.items():
        status, said = guest.run(["bash", "-c", f"findmnt -no SOURCE /run/dualblade/{name}"])
        assert status == 0
        node = said.strip().removesuffix("p1")
        status, said = guest.run(["lsblk", "--bytes", "--json", "--output", "NAME,SERIAL,LOG-SEC,SIZE", node])
        assert status == 0
        disk = json.loads(said)["blockdevices"][0]
        assert (disk["serial"].strip(), disk["log-sec"]) == (ssd.serial, ssd.lba_bytes)
        assert disk["size"] == ssd.size_mib << 20
        assert [part["size"] for part in disk["children"]] == [size for _, size in ssd.partitions]
        _, said = guest.run(["cat", f"/sys/block/{node.removeprefix('/dev/')}/queue/max_hw_sectors_kb"])
        assert int(said) == ssd.mdts_kib


def test_bad_blocks_fail_alone(guest: Guest) -> None:
    (bad,) = guest.machine.hardware.ssds["ssd_b"].read_error_lbas
    node = guest.run(["findmnt", "-no", "SOURCE", "/run/dualblade/ssd_b"])[1].strip().removesuffix("p1")
    read = ["dd", f"if={node}", "of=/dev/null", "bs=512", "count=1", "iflag=direct"]
    assert guest.run([*read, f"skip={bad - 8}"])[0] == 0
    status, said = guest.run([*read, f"skip={bad}"])
    assert status == 1 and "No data available" in said  # the kernel's word for a medium error


def test_command_that_hangs_is_ended(guest: Guest) -> None:
    with pytest.raises(RunError, match="did not end within 1 s"):
        guest.run(["sleep", "100"], timeout_s=1)
    assert guest.run(["true"]) == (0, "")


def test_all_variants_measure_in_one_guest(guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each result says on what it was measured, and its direct path went by NVMe commands to the right SSD."""
    testbed = borrowed(guest, tmp_path, monkeypatch)
    for turn, variant in enumerate(VARIANTS):
        ssd = list(SSDS)[turn % 2]
        point, settings, results = tiny_point(tmp_path, variant, ssd, SSDS[ssd])
        result = testbed.measure(point, settings, results, lambda event: None)
        assert result["status"] == "done", result["error"]
        record = results.find(point)
        assert record is not None
        found = record.environment
        assert (found["testbed"], found["emulated"], found["cgroup"]["version"]) == ("guest", True, 2)
        assert found["storage"]["serial"] == guest.machine.hardware.ssds[ssd].serial
        assert (int(found["lru_generation"], 16) != 0) == (SSDS[ssd] == "multigen")
        assert found["guest"]["accelerator"] in ("tcg", "kvm") and found["cache_drop"]["verified"]
        if variant in ("nvme_direct_only", "dual_blade"):
            assert result["backend"] == "nvme" and result["io_mode"]["direct"]["passthrough"]
            assert result["io_mode"]["direct"]["device"]["serial"] == found["storage"]["serial"]
            assert result["bytes"]["prefill"]["device_write"] >= result["plan"]["working_set_bytes"] // 3


def test_every_io_path_is_measured(guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the SSD's ext4, the namespace by the block layer, and past it; each block of each of them once."""
    testbed = borrowed(guest, tmp_path, monkeypatch)
    small = ("repetition=0", "io.size_mib=8", "io.block_kib=[64]", "io.queue_depths=[8]")
    where = (f"results_dir={tmp_path / 'results'}", "testbed=guest", "storage=ssd_a")
    targets = {}
    for config in compose_points(["+experiment=io_paths", *where, *small]):
        point, settings = IoPoint.from_config(config), Settings.from_config(config)
        result = testbed.measure(point, settings, ResultsFolder(settings.results_dir), lambda event: None)
        assert result["status"] == "done", result["error"]
        record = ResultsFolder(settings.results_dir).find(point)
        assert record is not None and record.environment["code_hash"] == point.code()
        (cell,) = result["cells"]
        assert (cell["bytes"], cell["requests"]) == (8 << 20, 128)
        targets[point.io.path] = result["target"]
    assert targets == {
        "ext4_buffered": "a file through the page cache",
        "ext4_direct": "a file, O_DIRECT",
        "block_direct": "an NVMe namespace as block device, O_DIRECT",
        "io_uring_cmd": "an NVMe namespace by native commands",
    }


def test_guest_that_hangs_costs_its_point_alone(guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still is given up at the deadline, its point failed and its log kept; the next runs."""
    testbed = borrowed(guest, tmp_path, monkeypatch)
    monkeypatch.setattr("experiments.guest.testbed.HARNESS_TIMEOUT_S", 1.0)
    point, settings, results = tiny_point(
        tmp_path, "baseline", "ssd_a", "classic", "deadline_s=1", "budget_ratio=0.001"
    )
    guest.machine.monitor.execute("stop")
    try:
        result = testbed.measure(point, settings, results, lambda event: None)
    finally:
        guest.machine.monitor.execute("cont")
    assert result["status"] == "failed" and "did not finish within 2 s" in result["error"]
    record = results.find(point)
    assert record is not None and record.failed and "Linux version" in (record.folder / "guest.log").read_text()
    assert guest.run(["echo", "alive"]) == (0, "alive\n")


def test_killed_harness_leaves_no_guest(tmp_path: Path) -> None:
    """The machine dies with its harness, and the next harness removes its images."""
    if missing := virtual_machine.missing_tool():
        pytest.skip(f"no guest can be booted: {missing}")
    state = tmp_path / "state"
    command = [sys.executable, "-m", "experiments.run", "testbed=guest", "storage=ssd_a", f"results_dir={tmp_path}"]
    harness = subprocess.Popen(command, env={**os.environ, "DUALBLADE_STATE_DIR": str(state)})
    (folder,) = wait_for(lambda: [path for path in CACHE.glob(f"run-{harness.pid}-*") if machines(path)])
    harness.kill()
    harness.wait()
    wait_for(lambda: not machines(folder))
    assert (folder / "ssd_a.img").exists()
    assert Journal(state / "journal.json").clear() > 0
    assert not folder.exists()


def wait_for(condition: Callable[[], T], timeout_s: float = 60.0) -> T:
    """What the condition gives once it is true."""
    ends_at = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < ends_at
        time.sleep(0.05)
    return value


def machines(folder: Path) -> list[int]:
    """Processes that run a guest from this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"qemu" in words[0] and any(str(folder).encode() in word for word in words):
                found.append(int(path.parent.name))
    return found


def borrowed(guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GuestTestbed:
    """A testbed whose guest is the tests' own."""
    testbed = GuestTestbed(Journal(tmp_path / "journal.json"))
    monkeypatch.setattr(testbed, "_guest_for", lambda wanted: guest)
    return testbed


def tiny_point(tmp_path: Path, variant: str, ssd: str, lru: str, *more: str) -> tuple[Point, Settings, ResultsFolder]:
    """A point of seconds: eight layers, half of the prompt, a budget for part of the KV."""
    where = [f"results_dir={tmp_path / 'results'}", "testbed=guest", f"storage={ssd}", f"testbed.lru={lru}"]
    (config,) = compose_points([*where, f"variant={variant}", *TINY, *more])
    settings = Settings.from_config(config)
    return Point.from_config(config), settings, ResultsFolder(settings.results_dir)

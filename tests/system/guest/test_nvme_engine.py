"""The engine on NVMe, in a guest: what a run sends to the device, and what faults and kills leave of the SSDs.

Partition 2 of both SSDs is filled with a pattern first. Whatever happens to the runs, at the end not one bit of it may
have changed, but for the blocks that the runs own, and those are given back. The images are compared on this side.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dualblade.units import MIB
from experiments.guest.emulated_ssd import EmulatedSsd
from experiments.guest.testbed import Guest
from experiments.points.sweep import compose_points
from experiments.processes.engine import Event

KILLS = int(os.environ.get("DUALBLADE_TEST_ENGINE_KILLS", "2"))  # a longer trial takes 100
TURNS = ("nvme_direct_only", "dual_blade", "cachepolicy_only", "baseline")
SSDS = ("ssd_a", "ssd_b")
FIRST_BYTE = 64 * MIB  # of partition 2, where the runs' blocks begin
TRACING = "/sys/kernel/tracing"
COMMAND = re.compile(r"cmd=\(nvme_cmd_write slba=(\d+), len=(\d+)")
EVENT = "events/nvme/nvme_setup_cmd/enable"
KILLER = Path(__file__).with_name("killer.sh")
AT_MOST_MS = 4000
STALL_S = 10.0
PAGE_BYTES = 4096
PROMPT_TOKENS, LAYERS = 130, 8
TINY = (
    *(f"model.n_layers={LAYERS}", f"workload.prompt_tokens={PROMPT_TOKENS}"),
    *("scale=32", "decode_iterations=2", "device=host_no_compute"),
)
ROW_BYTES = 8192  # of one sequence of OPT-6.7B
PROMPT_BYTES = PROMPT_TOKENS * ROW_BYTES
N_TENSORS = 2 * LAYERS


@dataclass
class Scene:
    """The guest, its images' content as it has to stay, and the bytes of each that runs may have written."""

    guest: Guest
    folder: Path
    before: dict[str, bytes] = field(default_factory=dict, repr=False)
    owned: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: {name: [] for name in SSDS})
    emptied: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: {name: [] for name in SSDS})

    def ssd(self, name: str) -> EmulatedSsd:
        return self.guest.machine.hardware.ssds[name]

    def image(self, name: str) -> Path:
        return self.guest.machine.folder / f"{name}.img"

    def raw(self, name: str) -> tuple[int, int]:
        """First byte and size of partition 2."""
        return self.ssd(name).partitions[1]

    def content(self, name: str) -> bytes:
        """The image as it is on the host's disk: QEMU writes past the page cache."""
        start, size = self.raw(name)
        with open(self.image(name), "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(start)
            return file.read(size)

    def allocated(self, name: str, first: int, end: int) -> bool:
        """Whether any of these bytes of the image takes space on the host's disk (lseek(2), SEEK_DATA)."""
        with open(self.image(name), "rb") as file:
            try:
                return os.lseek(file.fileno(), first, os.SEEK_DATA) < end
            except OSError:  # there is no data from there on
                return False

    def config(self, name: str, variant: str, *more: str) -> dict[str, Any]:
        first_lba = FIRST_BYTE // self.ssd(name).lba_bytes
        where = [f"results_dir={self.folder}", "testbed=guest", f"storage={name}", "storage.checksum=true"]
        (config,) = compose_points(
            [*where, *TINY, f"variant={variant}", "budget_ratio=0.6", f"storage.first_lba={first_lba}", *more]
        )
        return config

    def run(
        self, name: str, variant: str, *more: str, report: Callable[[Event], None] = lambda event: None
    ) -> tuple[dict[str, Any], Path]:
        """result.json, and the folder that it lies in."""
        config = self.config(name, variant, *more)
        mine = config["storage"]["serial"] == self.ssd(name).serial
        if mine:
            first_byte = self.raw(name)[0] + config["storage"]["first_lba"] * self.ssd(name).lba_bytes
            rows = PROMPT_TOKENS + config["decode_iterations"]
            self.owned[name].append((first_byte, first_byte + N_TENSORS * rows * ROW_BYTES))
        folder = self.guest.measure(config, 400, report)
        result = json.loads((folder / "result.json").read_text())
        # A run that was killed early, or that has layers in the page cache, has claimed less than all of it.
        if mine and variant == "nvme_direct_only" and "SIGKILL" not in (result["error"] or ""):
            self.emptied[name].append(self.owned[name][-1])
        return result, folder

    @contextlib.contextmanager
    def traced(self, name: str) -> Iterator[list[tuple[int, int]]]:
        """Writes to partition 2 inside the block, as the kernel's own trace has them: first and end LBA of each."""
        writes: list[tuple[int, int]] = []
        self.shell(f"cd {TRACING} && echo 16384 > buffer_size_kb && echo > trace && echo 1 > {EVENT}")
        yield writes
        said = self.shell(f"cd {TRACING} && echo 0 > {EVENT} && grep disk={self.node(name)}, trace")
        first_raw = self.raw(name)[0] // self.ssd(name).lba_bytes
        runs = [(int(slba), int(slba) + int(nlb) + 1) for slba, nlb in COMMAND.findall(said)]  # NLB counts from 0
        writes.extend(run for run in runs if run[0] >= first_raw)

    def node(self, name: str) -> str:
        """The namespace's name in the guest."""
        return self.shell(f"grep -l {self.ssd(name).serial} /sys/block/nvme*/device/serial").split("/")[3]

    def records(self) -> str:
        """What runs left to be given back."""
        return self.shell("ls -A /run/dualblade | grep raw-writes || true")

    def shell(self, command: str) -> str:
        status, said = self.guest.run(["bash", "-c", command])
        assert status == 0, said
        return said


@pytest.fixture(scope="module")
def scene(guest: Guest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(guest, tmp_path_factory.mktemp("results"))
    for name in SSDS:
        start, size = scene.raw(name)
        pattern = random.Random(name).randbytes(MIB)
        with open(scene.image(name), "r+b") as file:
            file.seek(start)
            for _ in range(size // MIB):
                file.write(pattern)
            os.fsync(file.fileno())
        scene.before[name] = scene.content(name)
    yield scene
    scene.before.clear()


@pytest.mark.parametrize("name", SSDS)
def test_a_prefill_is_sequential_within_its_extents(scene: Scene, name: str) -> None:
    """The kernel's own trace: every tensor's commands are contiguous, tensors lie back to back, and nothing else."""
    with scene.traced(name) as raw:
        result, folder = scene.run(name, "nvme_direct_only")
    assert result["status"] == "done", result["error"]
    direct, lba_bytes = result["io_mode"]["direct"], scene.ssd(name).lba_bytes
    first, end = direct["device"]["first_lba"], direct["device"]["last_lba"] + 1
    extents = extents_of(folder, lba_bytes)
    assert extents[0][0] == first and extents[-1][1] == end
    assert all(before[1] == after[0] for before, after in itertools.pairwise(extents))
    assert all(first <= start and stop <= end for start, stop in raw)
    assert (
        max(stop - start for start, stop in raw)
        <= min(direct["chunk_bytes"], scene.ssd(name).mdts_kib * 1024) // lba_bytes
    )
    for start, _ in extents:
        prompt_end = start + PROMPT_BYTES // lba_bytes
        prefill = sorted(run for run in raw if start <= run[0] < prompt_end)
        assert prefill[0][0] == start and prefill[-1][1] == prompt_end
        assert all(before[1] == after[0] for before, after in itertools.pairwise(prefill))
    assert result["hit_rate"]["decode"] == pytest.approx(0, abs=0.01)
    given_back = result["deallocated"]
    assert given_back["bytes"] == (end - first) * lba_bytes
    assert given_back["zero_bytes"] == given_back["checked_bytes"] > 0


@pytest.mark.parametrize(("op", "status"), [("read", "2h/81h"), ("write", "2h/80h")])
def test_a_bad_block_ends_a_run_in_one_sentence(scene: Scene, op: str, status: str) -> None:
    """Within the prefill for a write, within decode for a read; the device's own word, and where."""
    ssd = scene.ssd("ssd_b")
    (bad,) = ssd.write_error_lbas if op == "write" else ssd.read_error_lbas
    first = bad - (1000 if op == "write" else 30_000)  # the bad block for writes lies 10,000 behind the other one
    relative = first - scene.raw("ssd_b")[0] // ssd.lba_bytes
    result, _ = scene.run("ssd_b", "nvme_direct_only", f"storage.first_lba={relative}")
    assert result["status"] == "failed"
    assert re.search(
        rf"^{op} of [\d,]+ bytes .* of /dev/ng\dn1 \(serial DUALBLADE-B\) failed at byte [\d,]+ \(LBA [\d,]+\): "
        rf"NVMe status {status} ",
        result["error"],
    )
    assert "\n" not in result["error"]
    assert scene.records() == ""


def test_a_device_that_hardly_answers_ends_a_run_at_its_deadline(scene: Scene) -> None:
    """Commands that were given up may still write: their blocks are given back by the next run, not before."""

    def stall(event: Event) -> None:
        if event.get("phase") == "decode" and not stalled:
            stalled.append(threading.Timer(STALL_S, scene.guest.machine.monitor.throttle, ["ssd_a", 0, 0]))
            scene.guest.machine.monitor.throttle("ssd_a", 1000, 1000)
            stalled[0].start()

    stalled: list[threading.Timer] = []
    result, _ = scene.run("ssd_a", "nvme_direct_only", "storage.timeout_s=2", "decode_iterations=20", report=stall)
    stalled[0].join()
    assert result["status"] == "failed"
    assert re.search(r"^read of .* \(serial DUALBLADE-A\) failed at .*ETIMEDOUT.*storage\.timeout_s", result["error"])
    result, _ = scene.run("ssd_a", "nvme_direct_only")
    assert result["status"] == "done", result["error"]
    assert scene.records() == ""


def test_a_device_that_is_pulled_out_ends_a_run_in_one_sentence(scene: Scene) -> None:
    """Group 1's folder lies on another SSD, so that it can be cleared up."""
    pulled: list[bool] = []

    def pull(event: Event) -> None:
        if event.get("phase") == "decode" and not pulled:
            pulled.append(True)
            scene.guest.machine.monitor.unplug("ssd_spare")

    result, _ = scene.run(
        "ssd_a",
        "nvme_direct_only",
        *(
            "storage.serial=DUALBLADE-SPARE",
            "storage.first_lba=0",
            "decode_iterations=31",
            "workload.generated_tokens=500",
        ),
        report=pull,
    )
    assert pulled
    assert scene.records() != "", "nobody could give its blocks back"
    scene.shell("rm /run/dualblade/.raw-writes-*")
    assert result["status"] == "failed"
    assert re.search(r"^(read|write) of [\d,]+ bytes .* \(serial DUALBLADE-SPARE\) failed at .*LBA", result["error"])
    assert "\n" not in result["error"]


def test_runs_that_are_killed_leave_no_record(scene: Scene) -> None:
    """The variants in turn, on both SSDs, killed at a random moment of prefill or decode."""
    killed = 0
    for turn in range(KILLS):
        variant, name = TURNS[turn % len(TURNS)], SSDS[(turn + turn // len(TURNS)) % 2]
        scene.shell(f"setsid bash {KILLER} {AT_MOST_MS} > /dev/null 2>&1 < /dev/null &")
        result, _ = scene.run(name, variant, "decode_iterations=8")
        killed += "SIGKILL" in (result["error"] or "")
        assert scene.records() == ""
    assert killed >= KILLS / 2, "most were killed while they ran"


@pytest.mark.parametrize("name", SSDS)
def test_no_other_bit_of_the_ssds_has_changed(scene: Scene, name: str) -> None:
    """Everything outside the runs' blocks is as it was; they themselves are empty, and take no space in the image."""
    before, after = scene.before[name], scene.content(name)
    start, size = scene.raw(name)
    owned = [range(first - start, end - start) for first, end in scene.owned[name]]
    assert scene.emptied[name]
    assert not any(any(after[first - start : end - start]) for first, end in scene.emptied[name])
    assert not any(scene.allocated(name, first, end) for first, end in scene.emptied[name])
    changed = [at for at in range(0, size, PAGE_BYTES) if before[at : at + PAGE_BYTES] != after[at : at + PAGE_BYTES]]
    outside = [at for at in changed if not any(own.start <= at < own.stop for own in owned)]
    assert not outside, (
        f"{len(outside)} of {len(changed)} pages, the first at {outside[0]:,}, the last at {outside[-1]:,}"
    )


def extents_of(folder: Path, lba_bytes: int) -> list[tuple[int, int]]:
    """LBAs of each tensor, in the order of the device, from extents.json."""
    found = []
    for tensor in json.loads((folder / "extents.json").read_text())["tensors"]:
        ((_, start, size),) = tensor["pieces"]
        found.append((start // lba_bytes, (start + size) // lba_bytes))
    return sorted(found)

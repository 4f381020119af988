"""NVMe for real, in a guest: what reaches the device by native commands, what must never, and what is left behind."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments.guest.testbed import Guest

HERE = Path(__file__).parent
KILLS = int(os.environ.get("DUALBLADE_TEST_KILLS", "10"))  # per SSD; a longer trial takes 100
COMMAND = re.compile(r"nvme(?P<controller>\d+): .*cmd=\(nvme_cmd_(?P<op>\w+) slba=(?P<slba>\d+), len=(?P<len>\d+)")


def python(guest: Guest, script: str, *arguments: str, timeout_s: float = 300) -> dict[str, Any]:
    """What a script beside this one prints in the guest."""
    status, said = guest.run([sys.executable, str(HERE / script), *arguments], timeout_s)
    assert status == 0, said
    return dict(json.loads(said.splitlines()[-1]))


@pytest.fixture(scope="module")
def refusals(guest: Guest) -> dict[str, str | None]:
    ssd = guest.machine.hardware.ssds["ssd_b"]
    return python(guest, "refusals.py", ssd.serial, str(ssd.lba_bytes))


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("wrong serial", r"no NVMe device has serial 'SOMEBODY-ELSES'; present: .*nothing was written"),
        ("unnamed", r"storage\.serial must name the device, and either storage\.partition or storage\.last_lba"),
        ("other blocks", r"formatted with blocks of 512 bytes; set storage\.lba_bytes=512"),
        ("mounted", r"p1 is mounted on /run/dualblade/ssd_b.*unmount it"),
        ("partition table", r"has a partition table \(dos, .*p1, .*p2\).*storage\.partition"),
        ("no such partition", r"no partition 3; it has 1, 2"),
        ("no such namespace", r"no namespace 2; set storage\.namespace to one of 1"),
        ("outside", r"which has blocks 0 to [\d,]+; nothing was written"),
        ("too deep", r"queue_depth=4096 is more than the 1023 commands"),
        ("polling", r"no queue for that; load its driver with nvme\.poll_queues=2"),
        ("overlap", r"another run of this program uses LBAs [\d,]+ to [\d,]+ of .*overlap"),
        ("same partition", r"p2 for raw writes: Device or resource busy.*another run"),
        ("held", r"p2 is part of device-mapper volume dm-0 \(dualblade-test\)"),
        ("signature", r"p2 is not empty \(blkid finds .*TYPE=swap.*wipefs -a"),
        ("swap", r"p2 is in use as swap; run swapoff"),
    ],
)
def test_a_device_in_use_is_refused_with_the_reason(refusals: dict[str, str | None], use: str, words: str) -> None:
    said = refusals[use]
    assert said is not None, "it was not refused"
    assert re.search(words, said), said
    assert "\n" not in said


def test_a_device_without_anything_on_it_is_taken(refusals: dict[str, str | None]) -> None:
    assert refusals["free"] is None
    assert refusals["free again"] is None, "after everything that was put on it had gone"


@pytest.fixture(scope="module")
def direct_path(guest: Guest, refusals: dict[str, str | None]) -> dict[str, Any]:
    """By serial: what the device path script found on each SSD (512 KiB of MDTS and blocks of 4096; 16 KiB and 512)."""
    arguments = []
    for ssd in map(guest.machine.hardware.ssds.__getitem__, ("ssd_a", "ssd_b")):
        bad = [next(iter(lbas), 0) for lbas in (ssd.read_error_lbas, ssd.write_error_lbas)]
        arguments.append(":".join(map(str, (ssd.serial, ssd.lba_bytes, *bad))))
    return python(guest, "direct_path.py", str(KILLS), *arguments, timeout_s=300 + 10 * KILLS)


@pytest.mark.parametrize("name", ["ssd_a", "ssd_b"])
@pytest.mark.parametrize("shape", ["whole blocks", "odd rows", "large rows"])
def test_tensors_lie_back_to_back_and_commands_within_them(
    guest: Guest, direct_path: dict[str, Any], name: str, shape: str
) -> None:
    """As the kernel's trace has the commands of a prefill: none too large, none outside, nothing twice or left out."""
    ssd = guest.machine.hardware.ssds[name]
    found = direct_path[ssd.serial]["prefill"][shape]
    extents: list[tuple[int, int]] = found["extents"]
    for (lba, n_blocks), (following, _) in itertools.pairwise(extents):
        assert following == lba + n_blocks
    parsed = [COMMAND.match(line) for line in found["commands"]]
    assert all(parsed)
    assert {match["op"] for match in parsed if match} == {"write"}
    runs = [(int(match["slba"]), int(match["len"]) + 1) for match in parsed if match]  # NLB counts from 0
    assert max(n_blocks for _, n_blocks in runs) <= found["chunk_blocks"] <= ssd.mdts_kib * 1024 // ssd.lba_bytes
    for first, n_blocks in extents:
        own = sorted(run for run in runs if first <= run[0] < first + n_blocks)
        assert own[0][0] == first and sum(own[-1]) == first + n_blocks
        assert all(sum(run) == following for run, (following, _) in itertools.pairwise(own))
        assert len(own) == -(-n_blocks // found["chunk_blocks"])
    assert len(runs) == sum(-(-n_blocks // found["chunk_blocks"]) for _, n_blocks in extents)
    assert found["registered"], "Linux 6.1 takes registered buffers"


@pytest.mark.parametrize("name", ["ssd_a", "ssd_b"])
def test_nothing_outside_the_extents_is_ever_sent(guest: Guest, direct_path: dict[str, Any], name: str) -> None:
    found = direct_path[guest.machine.hardware.ssds[name].serial]["bounds"]
    assert all("outside the extents" in said for said in found["said"])
    assert found["commands"] == []


@pytest.mark.parametrize("name", ["ssd_a", "ssd_b"])
def test_what_is_deallocated_reads_as_zeroes(guest: Guest, direct_path: dict[str, Any], name: str) -> None:
    for found in direct_path[guest.machine.hardware.ssds[name].serial]["prefill"].values():
        done, n_blocks = found["deallocated"], sum(n_blocks for _, n_blocks in found["extents"])
        assert done["bytes"] == n_blocks * guest.machine.hardware.ssds[name].lba_bytes
        assert done["zero_bytes"] == done["checked_bytes"] > 0


def test_bad_blocks_are_reported_with_device_lba_operation_and_status(
    guest: Guest, direct_path: dict[str, Any]
) -> None:
    said = direct_path[guest.machine.hardware.ssds["ssd_b"].serial]["faults"]
    assert re.search(
        r"^read of 16,384 bytes .* of /dev/ng\dn1 \(serial DUALBLADE-B\) failed .*\(LBA 1,999,992\): "
        r"NVMe status 2h/81h \(unrecovered read error, media and data integrity error",
        said["read"],
    )
    assert re.search(r"^write of 16,384 bytes .*LBA 2,009,992\): NVMe status 2h/80h \(write fault", said["write"])


@pytest.mark.parametrize("name", ["ssd_a", "ssd_b"])
def test_a_killed_writer_leaves_nothing_behind(guest: Guest, direct_path: dict[str, Any], name: str) -> None:
    """Killed at random moments: the next start gives its blocks back, and what lies next to them has not changed."""
    found = direct_path[guest.machine.hardware.ssds[name].serial]["kills"]
    assert found["intact"] == [True, True]
    assert not found["records_left"]
    assert found["reclaimed_bytes"] >= found["kills"] * found["size_bytes"] / 2, "most were killed while they wrote"

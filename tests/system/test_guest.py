"""The guest: both emulated SSDs are there as described, and what it is asked for is answered."""

from __future__ import annotations

import json

import pytest

from experiments.errors import RunError
from experiments.guest import Guest


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

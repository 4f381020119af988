"""The guest as configuration: what cannot be emulated is refused in words, what can be is what was asked for."""

from __future__ import annotations

import shutil
import socket
import time

import pytest

from dualblade.errors import ConfigurationError
from experiments.errors import MachineError
from experiments.guest import emulated_ssd, kernel
from experiments.points.point import Point
from experiments.points.sweep import CONF, compose_points
from experiments.processes.channel import Channel

GUEST = ("testbed=guest", "storage=ssd_a")


def point(*overrides: str) -> Point:
    (config,) = compose_points(overrides)
    return Point.from_config(config)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("storage=ssd_a",), "add testbed=guest"),
        (("testbed=guest",), "add storage=ssd_a or storage=ssd_b"),
        ((*GUEST, "testbed.lru=fifo"), "testbed.lru=fifo is not known; use one of classic, multigen"),
        ((*GUEST, "testbed.cpus=0"), "testbed.cpus=0 is no size of a guest; give 1 or more"),
        (
            (*GUEST, "emulated_ssd.mdts_kib=48"),
            "emulated_ssd.mdts_kib=48 cannot be emulated; give 4 times a power of two",
        ),
        ((*GUEST, "emulated_ssd.lba_bytes=1024"), "emulated_ssd.lba_bytes=1024 cannot be emulated; give 512 or 4096"),
        ((*GUEST, "emulated_ssd.read_mb_per_s=0"), "emulated_ssd.read_mb_per_s=0 cannot be emulated"),
        ((*GUEST, "storage.iopoll=true"), "the guest has no queues for that; add testbed.poll_queues=2"),
        ((*GUEST, "testbed.poll_queues=5"), "testbed.poll_queues=5 is not possible with testbed.cpus=4 and"),
        ((*GUEST, "testbed.poll_queues=2", "emulated_ssd.queue_pairs=2"), "emulated_ssd.queue_pairs=2; give 0 to 1"),
        ((*GUEST, "testbed.kernel=6.12"), "testbed.kernel=6.12 is no package of a kernel; give a meta package such as"),
        ((*GUEST, "+emulated_ssd.speed=3"), "emulated_ssd.speed is not a setting"),
        ((*GUEST, "~emulated_ssd.serial"), "emulated_ssd.serial is missing"),
        ((*GUEST, "emulated_ssd.mdts_kib=most"), "emulated_ssd.mdts_kib='most' has the wrong type; expected int"),
    ],
)
def test_what_no_guest_can_be_is_refused_with_the_cure(overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said.replace(".", r"\.")):
        point(*overrides)


def test_everything_about_the_guest_is_part_of_a_point() -> None:
    """Results of another LRU, SSD, throttle or size are never taken for this one's; other testbeds' hashes stay."""
    others = [
        "testbed.lru=multigen",
        "emulated_ssd.read_mb_per_s=75",
        "testbed.memory_mib=2048",
        "storage=ssd_b",
        "testbed.poll_queues=2",
        "testbed.kernel=linux-image-6.12-amd64",
    ]
    hashes = {point(*GUEST, *([other] if other else [])).config_hash for other in ["", *others]}
    assert len(hashes) == len(others) + 1
    assert point().guest is None


def test_both_ssds_of_the_configuration_can_be_emulated() -> None:
    found = emulated_ssd.described(CONF)
    assert set(found) == {"ssd_a", "ssd_b"}
    assert {ssd.lba_bytes for ssd in found.values()} == {512, 4096}
    for name, ssd in found.items():
        (config,) = compose_points(["testbed=guest", f"storage={name}"])
        assert config["storage"]["serial"] == ssd.serial and config["storage"]["lba_bytes"] == ssd.lba_bytes
        assert config["storage"]["chunk_bytes"] <= ssd.mdts_kib << 10


def test_messages_come_whole_however_they_are_cut() -> None:
    near, far = socket.socketpair()
    channel = Channel(near)
    for piece in (b'{"a": 1}\nno', b" message\n[1]\n{", b'"b": 2}\n'):
        far.sendall(piece)
    ends_at = time.monotonic() + 5
    assert [channel.receive(ends_at), channel.receive(ends_at)] == [{"a": 1}, {"b": 2}]
    with pytest.raises(TimeoutError):
        channel.receive(time.monotonic() + 0.01)
    far.close()
    assert channel.receive(ends_at) is None


@pytest.mark.skipif(shutil.which("apt-cache") is None, reason="the guest's kernels are Debian's packages")
def test_a_kernel_that_the_distribution_does_not_have_is_named_and_leaves_nothing() -> None:
    with pytest.raises(MachineError, match=r"no package linux-image-0\.0-none; name another by testbed\.kernel"):
        kernel.fetch("linux-image-0.0-none")
    assert not (kernel.CACHE / "linux-image-0.0-none").exists()

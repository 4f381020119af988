"""Completions that are polled for, in a guest whose SSD has queues for that: right data, and no interrupt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dualblade.claim import kernel_version
from experiments.guest import Guest
from tests.conftest import GUEST_POLL_QUEUES
from tests.system.test_guest import borrowed, tiny_point
from tests.system.test_nvme_namespace import python

COMMANDS = 2 * (4 << 20) // 16384  # of tests/system/guest_polling.py: written and read in chunks of 16 KiB


@pytest.fixture(scope="module")
def moved(guest: Guest) -> dict[str, Any]:
    ssd = guest.machine.hardware.ssds["ssd_a"]
    return python(guest, "guest_polling.py", ssd.serial, str(ssd.lba_bytes))


@pytest.mark.parametrize(("how", "kind"), [("polled", "poll"), ("waited", "default")])
def test_commands_take_the_queues_that_they_should(moved: dict[str, Any], how: str, kind: str) -> None:
    """By the kernel's trace and its own word on its queues; and both ways the data is right."""
    assert moved[how]["commands"] == COMMANDS
    assert moved[how]["types"] == [kind]
    assert moved[how]["same"] == [True, True]


def test_polling_takes_no_interrupts(moved: dict[str, Any]) -> None:
    """Whoever else uses the SSD meanwhile, as its file system may, gets a few."""
    assert moved["waited"]["interrupts"] > COMMANDS / 20
    assert moved["polled"]["interrupts"] < moved["waited"]["interrupts"] / 5


def test_a_run_polls_or_says_why_not(guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several rings share a queue in a run, which the kernels that ended a request under its poller do not survive."""
    testbed = borrowed(guest, tmp_path, monkeypatch)
    polling = ("storage.iopoll=true", f"testbed.poll_queues={GUEST_POLL_QUEUES}", "storage.checksum=true")
    point, settings, results = tiny_point(tmp_path, "dual_blade", "ssd_a", "classic", *polling)
    result = testbed.measure(point, settings, results, lambda event: None)
    record = results.find(point)
    assert record is not None
    if kernel_version(record.environment["kernel"]) < (6, 5):
        assert "before 6.5 the kernel may follow a freed request" in result["error"]
    else:
        assert result["io_mode"]["direct"]["iopoll"] and result["bytes"]["decode"]["device_read"] > 0
    assert record.environment["guest"]["poll_queues"] == GUEST_POLL_QUEUES

"""Completions that are polled for, in a guest whose SSD has queues for that: right data, and no interrupt.

A whole run that polls is in test_guest_unprivileged.py, which boots a guest anyway.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from experiments.errors import MachineError
from experiments.guest import virtual_machine
from experiments.guest.kernel import CACHE
from experiments.guest.testbed import Guest
from experiments.machine.journal import Journal
from tests.conftest import GUEST_SSDS
from tests.system.guest.test_nvme_namespace import python

COMMANDS = 2 * (4 << 20) // 16384  # of tests/system/guest/polling.py: written and read in chunks of 16 KiB
POLL_QUEUES = 2
KERNEL = "linux-image-6.12-amd64"  # the first that Debian 12 has on which the rings of a run may share a polled queue


@pytest.fixture(scope="module")
def polling_guest() -> Iterator[Guest]:
    """A guest of its own: queues are made when the driver is loaded, and its kernel is another."""
    if missing := virtual_machine.missing_tool():
        pytest.skip(f"no guest can be booted: {missing}")
    hardware = virtual_machine.Hardware(2, 2048, {"ssd_a": GUEST_SSDS["ssd_a"]}, POLL_QUEUES, KERNEL)
    with contextlib.ExitStack() as stack:
        try:
            machine = stack.enter_context(virtual_machine.running(hardware, Journal(CACHE / "test-polling.json")))
        except MachineError as error:
            pytest.skip(str(error))
        guest = Guest(machine)
        yield guest
        guest.end()


@pytest.fixture(scope="module")
def moved(polling_guest: Guest) -> dict[str, Any]:
    ssd = polling_guest.machine.hardware.ssds["ssd_a"]
    return python(polling_guest, "polling.py", ssd.serial, str(ssd.lba_bytes))


@pytest.mark.parametrize(("how", "kind"), [("polled", "poll"), ("waited", "default")])
def test_commands_take_the_queues_that_they_should(moved: dict[str, Any], how: str, kind: str) -> None:
    """By the kernel's trace and its own word on its queues; and both ways the data is right."""
    assert moved[how]["commands"] == COMMANDS
    assert moved[how]["types"] == [kind]
    assert moved[how]["same"] == [True, True]


def test_polling_takes_no_interrupts(moved: dict[str, Any]) -> None:
    """Nobody else uses the SSD meanwhile: its file system is frozen."""
    assert moved["waited"]["interrupts"] > COMMANDS / 20
    assert moved["polled"]["interrupts"] == 0

"""NVMe statuses as the kernel hands them on."""

from __future__ import annotations

import pytest

from dualblade.linux.nvme_status import describe


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0x0281, "2h/81h (unrecovered read error, media and data integrity error; retried in vain)"),
        (0x4280, "2h/80h (write fault, media and data integrity error; the device says not to retry)"),
        (0x4080, "0h/80h (LBA out of range, generic command status; the device says not to retry)"),
        (0x07C1, "7h/C1h (vendor specific status; retried in vain)"),
    ],
)
def test_type_code_and_the_devices_advice_are_told(status: int, words: str) -> None:
    assert describe(status) == f"NVMe status {words}"

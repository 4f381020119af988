"""What a kernel is called where results have to be of one: its series, and how it replaces pages."""

from __future__ import annotations

import re


def series(release: str) -> str:
    """A release without its patches, 6.1 of 6.1.0-18-amd64; as it is where it has another form."""
    found = re.match(r"\d+\.\d+", release)
    return found.group() if found else release


def lru(switch: str | None) -> str:
    """Page replacement by what /sys/kernel/mm/lru_gen/enabled held, "absent" on kernels without it.

    Its lowest bit is the switch (Linux, admin-guide/mm/multigen_lru.rst).
    """
    if switch == "absent":
        return "classic"
    if switch is None or not re.fullmatch(r"0x[0-9a-fA-F]+", switch):
        return "unknown"
    return "multi-generational" if int(switch, 16) & 1 else "classic"

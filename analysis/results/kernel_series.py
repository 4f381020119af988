"""Names of a kernel for comparisons: its series, and how it replaces pages."""

from __future__ import annotations

import re


def series(release: str) -> str:
    """Return the series of a release, 6.1 for 6.1.0-18-amd64; a release of another form is returned as it is."""
    found = re.match(r"\d+\.\d+", release)
    return found.group() if found else release


def lru(switch: str | None) -> str:
    """Return the name of the page replacement, from /sys/kernel/mm/lru_gen/enabled ("absent" on kernels without it).

    Its lowest bit is the switch (Linux, admin-guide/mm/multigen_lru.rst).
    """
    if switch == "absent":
        return "classic"
    if switch is None or not re.fullmatch(r"0x[0-9a-fA-F]+", switch):
        return "unknown"
    return "multi-generational" if int(switch, 16) & 1 else "classic"

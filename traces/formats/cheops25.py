"""Reads traces of the CHEOPS'25 artifact: nsecs, rwbs, bytes, sector, nr_sector of each request at its issue.

They have no completions, so they give no latency, no depth and no busy rate.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from traces.commands import COMMAND, FLUSH, SECTOR_BYTES, Array, records
from traces.devices import Devices
from traces.formats.block_requests import operations
from traces.text import LineCounts, LineFormat

DISK = "disk"  # the format does not name it
_LINES = LineFormat(
    {
        **dict.fromkeys(("ns", "rwbs", "bytes", "sector", "nr_sector"), pa.int64()),
        "rwbs": pa.dictionary(pa.int32(), pa.string()),
    },
    rb"\s*\d{1,18}\s*,\s*[A-Z]+\s*,\s*\d{1,12}\s*,\s*\d{1,16}\s*,\s*\d{1,10}\s*",
)


def parse(block: bytes, devices: Devices, counts: LineCounts) -> Array:
    """Return the commands of a block of lines, which have no completion."""
    table = _LINES.parse(block, counts)
    counts.printed_events += len(table)
    op = operations(table["rwbs"])
    return records(
        COMMAND,
        len(table),
        issue_ns=table["ns"].to_numpy(),
        device=devices.index(DISK),
        op=op,
        offset_bytes=np.where(op == FLUSH, -1, table["sector"].to_numpy() * SECTOR_BYTES),
        bytes=table["bytes"].to_numpy(),
    )

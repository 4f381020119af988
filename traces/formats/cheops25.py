"""Reads traces of the CHEOPS'25 artifact: nsecs, rwbs, bytes, sector, nr_sector of each request, at its issue.

There are no completions in them, so latencies, depths and busy rates cannot be had from them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from traces.devices import Devices
from traces.events import FLUSH, ISSUE, SECTOR_BYTES, Events, make_events
from traces.formats.block_requests import by_rwbs
from traces.text import Account, LineFormat

DISK = "disk"  # the format does not say which
_NUMBER = pa.int64()
_LINES = LineFormat(
    {
        "ns": _NUMBER,
        "rwbs": pa.dictionary(pa.int32(), pa.string()),
        "bytes": _NUMBER,
        "sector": _NUMBER,
        "nr_sector": _NUMBER,
    },
    rb"\s*\d{1,18}\s*,\s*[A-Z]+\s*,\s*\d{1,12}\s*,\s*\d{1,16}\s*,\s*\d{1,10}\s*",
)


def parse(block: bytes, devices: Devices, account: Account) -> Events:
    """The events of a block of lines."""
    table = _LINES.parse(block, account)
    n = len(table)
    account.printed_events += n
    op = by_rwbs(table["rwbs"])
    return make_events(
        n,
        kind=ISSUE,
        ns=table["ns"].to_numpy(),
        device=devices.only(DISK, n),
        op=op,
        offset_bytes=np.where(op == FLUSH, -1, table["sector"].to_numpy() * SECTOR_BYTES),
        bytes=table["bytes"].to_numpy(),
    )

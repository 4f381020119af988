"""Device addresses for a plot: where commands lie on the device, and how far the device had come when each was issued.

Tensors lie far apart on a disk, so that the gaps between them would be all that one sees: they are closed, which keeps
the order of addresses and what adjoins what.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

MIB = 1 << 20
WIDEST_GAP_BYTES = MIB  # a wider one is closed to this


def with_places(commands: pd.DataFrame) -> pd.DataFrame:
    """The commands with `place_mib`, their address with gaps closed, and `issued_mib`, what was issued before each."""
    ordered = commands.sort_values("issue_ns", kind="stable")
    return ordered.assign(
        place_mib=closed_gaps(ordered["offset_bytes"], ordered["bytes"]) / MIB,
        issued_mib=(ordered["bytes"].cumsum() - ordered["bytes"]) / MIB,
    )


def closed_gaps(offset_bytes: pd.Series, size_bytes: pd.Series) -> pd.Series:
    """Addresses from 0 with no gap wider than `WIDEST_GAP_BYTES` between what the commands cover."""
    by_address = pd.DataFrame({"begin": offset_bytes, "end": offset_bytes + size_bytes}).sort_values("begin")
    reach = by_address["end"].cummax().shift()
    gap = (by_address["begin"] - reach).fillna(by_address["begin"]).clip(lower=0)
    first = np.arange(len(gap)) == 0
    excess = (gap - np.where(first, 0, WIDEST_GAP_BYTES)).clip(lower=0)
    return (by_address["begin"] - excess.cumsum()).reindex(offset_bytes.index)

"""Text columns of the schema: indices into a few values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def names(codes: npt.NDArray[np.integer[Any]], values: list[str]) -> pa.Array:
    """A text column from indices into `values`."""
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(values, pa.string()))

"""Residency: which path each KV placement unit takes (paper, Algorithm 1). Pure arithmetic.

A KPU is the (K, V) pair of one layer. Paths have names, not numbers, so that a third one needs changes only here and in
`paths`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dualblade.config.run import VariantConfig
from dualblade.errors import ConfigurationError

PathName = Literal["page_cache", "page_cache_evict", "direct"]

_OVERFLOW_PATH: dict[str, PathName] = {"leave": "page_cache", "evict": "page_cache_evict", "direct": "direct"}


@dataclass(frozen=True)
class Plan:
    """The path of every layer; `knob_bytes` is Algorithm 1's X, or None if all layers go to the page cache."""

    knob_bytes: int | None
    layers: tuple[PathName, ...]

    @property
    def n1(self) -> int:
        """Number of layers in Group 1, which the page cache is meant to hold."""
        return self.layers.count("page_cache")


def knob_bytes(variant: VariantConfig, b_pc_bytes: int, in_flight_bytes: int, kpu_bytes: Sequence[int]) -> int | None:
    """Return X for a variant: None for "all", the budget less slack for "budget", a share of the layers, or bytes.

    `slack` is kept free, because a plan that just fits in theory thrashes in practice. Evicted tensors pass through the
    page cache: `in_flight_bytes`, one tensor per copy thread, are kept free for them too.

    Raises:
        ConfigurationError: the knob is neither "all", "budget", "0%" to "100%" nor bytes within [0, B_pc].
    """
    if variant.knob == "all":
        return None
    if variant.knob == "budget":
        passing_through = in_flight_bytes if variant.overflow == "evict" else 0
        return max(0, int(b_pc_bytes * (1 - variant.slack)) - passing_through)
    if isinstance(variant.knob, str) and (share := _share(variant.knob)) is not None:
        return sum(kpu_bytes[: round(share * len(kpu_bytes))])
    if not isinstance(variant.knob, int) or not 0 <= variant.knob <= b_pc_bytes:
        raise ConfigurationError(
            f"variant.knob={variant.knob} is outside the page-cache budget of 0..{b_pc_bytes:,} bytes; "
            'give bytes in that range, a share of the layers ("25%"), "budget" or "all"'
        )
    return variant.knob


def _share(text: str) -> float | None:
    """Parse a share such as "25%"; None for other text."""
    digits, percent, rest = text.partition("%")
    try:
        share = float(digits) / 100
    except ValueError:
        return None
    return share if percent and not rest and 0 <= share <= 1 else None


def plan_residency(
    kpu_bytes: Sequence[int],
    knob_bytes: int | None,
    overflow: Literal["leave", "evict", "direct"],
) -> Plan:
    """Algorithm 1: give Group 1 the first layers, as many as fit in X; the others overflow.

    `kpu_bytes` are the sizes of the layers' (K, V) pairs.
    """
    if knob_bytes is None:
        return Plan(None, tuple(_OVERFLOW_PATH["leave"] for _ in kpu_bytes))
    layers: list[PathName] = [_OVERFLOW_PATH[overflow]] * len(kpu_bytes)
    left_bytes = knob_bytes
    for layer, size_bytes in enumerate(kpu_bytes):
        left_bytes -= size_bytes
        if left_bytes < 0:
            break
        layers[layer] = "page_cache"
    return Plan(knob_bytes, tuple(layers))

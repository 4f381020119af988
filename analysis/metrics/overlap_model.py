"""The time of one layer under each strategy, by a model small enough to check by hand. Pure arithmetic.

A layer is two tensors of b bytes, read at S bytes/s by a storage device that concurrent reads share, and copied at D
bytes/s over a link that takes one copy at a time; a layer begins when the one before has arrived. Overlap-Intra reads
both at once, so that both arrive after 2b/S and are then copied; Overlap-Cross reads the second while the first is
copied. No schedule can beat the slower of the two resources.
"""

from __future__ import annotations


def intra_s(b: float, s: float, d: float) -> float:
    """2b/S + 2b/D."""
    return 2 * b / s + 2 * b / d


def cross_s(b: float, s: float, d: float) -> float:
    """b/S + max(b/S, b/D) + b/D."""
    return b / s + max(b / s, b / d) + b / d


def limit_s(b: float, s: float, d: float) -> float:
    """max(2b/S, 2b/D), which overlap_full comes near to: storage and link never wait for each other."""
    return max(2 * b / s, 2 * b / d)


LAYER_S = {"intra": intra_s, "cross": cross_s, "overlap_full": limit_s}


def gain(strategy: str, over: str, link_to_storage: float) -> float:
    """By what share of `over`'s time `strategy` is shorter, at a ratio D/S of the rates; 0.25 is a quarter less."""
    return 1 - LAYER_S[strategy](1.0, 1.0, link_to_storage) / LAYER_S[over](1.0, 1.0, link_to_storage)

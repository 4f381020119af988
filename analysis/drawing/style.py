"""How the figures look: one column of a systems paper, readable without colour, text that stays text in the PDF."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

COLUMN_WIDTH_IN = 3.35
PNG_DPI = 300

RC: dict[Any, Any] = {
    "pdf.fonttype": 42,
    "savefig.dpi": PNG_DPI,
    "font.family": "DejaVu Sans",
    "font.size": 7,
    "axes.labelsize": 7,
    "axes.titlesize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "xtick.direction": "in",
    "ytick.direction": "in",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.6,
    "lines.markeredgewidth": 0.9,
    "errorbar.capsize": 1.5,
}


class Look(NamedTuple):
    """The printed name of a variant and its line, equal in all figures. Colours: Okabe and Ito's palette."""

    label: str
    color: str
    marker: str
    linestyle: str
    hollow: bool = False

    @property
    def line(self) -> dict[str, Any]:
        """Keyword arguments of a matplotlib line."""
        return {
            "color": self.color,
            "marker": self.marker,
            "linestyle": self.linestyle,
            "markerfacecolor": "white" if self.hollow else self.color,
        }

    @property
    def mark(self) -> dict[str, Any]:
        """Keyword arguments of marks without a line."""
        return self.line | {"linestyle": "none"}


VARIANTS = {
    "baseline": Look("Baseline", "#000000", "o", "-"),
    "cachepolicy_only": Look("CachePolicy-Only", "#E69F00", "s", "--"),
    "nvme_direct_only": Look("NVMe-direct-Only", "#0072B2", "^", "-.", hollow=True),
    "dual_blade": Look("DUAL-BLADE", "#D55E00", "D", "-"),
}
IO_PATHS = {
    "ext4_buffered": Look("buffered", "#000000", "o", "-"),
    "ext4_direct": Look("O_DIRECT", "#E69F00", "s", "--"),
    "block_direct": Look("block O_DIRECT", "#0072B2", "^", "-.", hollow=True),
    "io_uring_cmd": Look("io_uring_cmd", "#D55E00", "D", "-"),
}
PIPELINES = {
    "none": Look("off", "#000000", "o", "-"),
    "intra": Look("Overlap-Intra", "#000000", "o", "-"),
    "cross": Look("Overlap-Cross", "#0072B2", "^", "-.", hollow=True),
    "adaptive": Look("adaptive", "#D55E00", "D", "-"),
    "overlap_full": Look("overlap_full (ours)", "#009E73", "v", ":"),
}
PHASE_PARTS = {
    "compute": ("compute", "#BBBBBB", ""),
    "storage_stall": ("waiting for storage", "#0072B2", ""),
    "link_stall": ("waiting for the link", "#E69F00", "////"),
    "other": ("other", "#FFFFFF", "...."),
}
SPARE = (("#009E73", "v", ":"), ("#CC79A7", "P", "--"), ("#56B4E9", "X", "-."))


def looks(variants: Iterable[str]) -> dict[str, Look]:
    """The looks of the variants present, in the paper's order; other variants follow under their own names."""
    present = set(variants)
    others = sorted(present - VARIANTS.keys())
    spare = {name: Look(name, *SPARE[turn % len(SPARE)]) for turn, name in enumerate(others)}
    return {name: look for name, look in VARIANTS.items() if name in present} | spare

"""Where the checkout and its sample of measured results are."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SAMPLE = CHECKOUT / "tests/data"

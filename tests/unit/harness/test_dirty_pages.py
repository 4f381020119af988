"""Dirty limits on made-up settings; tests/system holds them against the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.machine.dirty_pages import MIN_BYTES, held_to_budget
from experiments.machine.journal import Journal


def settings(folder: Path, **values: int) -> Path:
    for name in ("dirty_ratio", "dirty_bytes", "dirty_background_ratio", "dirty_background_bytes"):
        (folder / name).write_text(f"{values.get(name, 0)}\n")
    return folder


@pytest.mark.parametrize(
    ("before", "undone"),
    [
        ({"dirty_ratio": 20, "dirty_background_ratio": 10}, {"dirty_ratio": 20, "dirty_background_ratio": 10}),
        ({"dirty_ratio": 20}, {"dirty_ratio": 20, "dirty_background_ratio": 0}),
        (
            {"dirty_bytes": 9 << 20, "dirty_background_bytes": 4 << 20},
            {"dirty_bytes": 9 << 20, "dirty_background_bytes": 4 << 20},
        ),
    ],
    ids=["shares", "a background share of nothing", "bytes"],
)
def test_what_is_in_force_is_set_back(tmp_path: Path, before: dict[str, int], undone: dict[str, int]) -> None:
    """The kernel refuses bytes of 0, and clears bytes when a ratio is written."""
    vm = settings(tmp_path, **before)
    journal = tmp_path / "journal.json"
    with held_to_budget(1 << 30, 1, Journal(journal), vm):
        entries = {Path(path).name: value for _, path, value in Journal(journal)._entries}
    assert entries == {name: str(value) for name, value in undone.items()}


def test_a_share_is_of_the_budget_and_never_less_than_the_kernel_takes(tmp_path: Path) -> None:
    vm = settings(tmp_path, dirty_ratio=20)
    with held_to_budget(1 << 30, 1, Journal(tmp_path / "journal.json"), vm) as held:
        assert held["dirty_bytes"] == (1 << 30) // 5
        assert held["dirty_background_bytes"] == MIN_BYTES

"""Algorithm 1 against a search by brute force, and the four variants as points of one space."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualblade.config.run import VariantConfig
from dualblade.errors import ConfigurationError
from dualblade.plan.residency import knob_bytes, plan_residency

sizes = st.lists(st.integers(1, 1000), min_size=1, max_size=40)


@given(sizes, st.integers(0, 50_000))
def test_group_1_is_the_longest_run_of_layers_that_fits(kpu_bytes: list[int], knob: int) -> None:
    plan = plan_residency(kpu_bytes, knob, "direct")
    longest = max(n for n in range(len(kpu_bytes) + 1) if sum(kpu_bytes[:n]) <= knob)
    assert plan.n1 == longest
    assert plan.layers == ("page_cache",) * longest + ("direct",) * (len(kpu_bytes) - longest)


@pytest.mark.parametrize(
    ("knob", "overflow", "layers"),
    [
        ("all", "leave", ("page_cache",) * 4),  # Baseline
        ("budget", "evict", ("page_cache", "page_cache_evict", "page_cache_evict", "page_cache_evict")),
        (0, "direct", ("direct",) * 4),  # NVMe-direct-Only
        ("budget", "direct", ("page_cache", "page_cache", "page_cache", "direct")),  # DUAL-BLADE
    ],
)
def test_the_papers_variants(knob: str | int, overflow: str, layers: tuple[str, ...]) -> None:
    variant = VariantConfig("any", knob, overflow, slack=0.1)  # type: ignore[arg-type]
    budget = knob_bytes(
        variant, b_pc_bytes=390, in_flight_bytes=200, kpu_bytes=[100] * 4
    )  # 351 after slack: three layers, not four
    assert plan_residency([100] * 4, budget, variant.overflow).layers == layers


@pytest.mark.parametrize(("share", "n1"), [("0%", 0), ("25%", 8), ("50.0%", 16), ("100%", 32)])
def test_a_share_of_the_layers_holds_whatever_the_budget(share: str, n1: int) -> None:
    knob = knob_bytes(VariantConfig("any", share, "direct"), b_pc_bytes=0, in_flight_bytes=0, kpu_bytes=[10] * 32)
    assert plan_residency([10] * 32, knob, "direct").n1 == n1


@pytest.mark.parametrize("knob", ["half", "101%", "-1%", "%", "5%5", "nan%", -1, 391])
def test_a_knob_outside_the_budget_is_refused(knob: str | int) -> None:
    with pytest.raises(ConfigurationError, match=r"variant\.knob=.* 0\.\.390 bytes"):
        knob_bytes(VariantConfig("any", knob, "direct"), b_pc_bytes=390, in_flight_bytes=0, kpu_bytes=[])

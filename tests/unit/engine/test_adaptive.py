"""The adaptive policy against the paper's rule: cold, Intra, Cross, then the faster one, each group by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualblade.paths.base import Moment
from dualblade.pipeline.adaptive import Adaptive

LAYERS = 3
rates = st.floats(0.1, 100)


def iterate(policy: Adaptive, number: int, gb_per_s: dict[str, dict[str, float]]) -> dict[str, str]:
    """One decode iteration in which a group's layers load at the given rate of the strategy it gets."""
    used: dict[str, str] = {}
    moment = Moment("decode", number)
    for group, by_strategy in gb_per_s.items():
        strategies = set()
        for _ in range(LAYERS):
            strategy = policy.strategy(group, moment)
            strategies.add(strategy)
            policy.observe(group, moment, 10**9, 1 / by_strategy[strategy])
        (used[group],) = strategies
    return used


@given(intra=rates, cross=rates, other_intra=rates, other_cross=rates)
def test_each_group_keeps_its_faster_strategy(
    intra: float, cross: float, other_intra: float, other_cross: float
) -> None:
    policy = Adaptive()
    speeds = {
        "page_cache": {"intra": intra, "cross": cross},
        "direct": {"intra": other_intra, "cross": other_cross},
    }
    runs = [iterate(policy, number, speeds) for number in range(1, 8)]
    for group, speed in speeds.items():
        faster = "cross" if speed["cross"] > speed["intra"] else "intra"
        assert [run[group] for run in runs] == ["intra", "intra", "cross", *[faster] * 4]
        (decision,) = policy.summary()["groups"][group]["decisions"]
        assert decision["iteration"] == 4
        assert decision["choice"] == policy.summary()["groups"][group]["choice"] == faster
        assert decision["intra_gb_per_s"] == pytest.approx(speed["intra"])
        assert decision["cross_gb_per_s"] == pytest.approx(speed["cross"])


def test_a_cold_first_iteration_decides_nothing() -> None:
    policy = Adaptive()
    iterate(policy, 1, {"direct": {"intra": 0.01, "cross": 0.01}})
    for number in range(2, 5):
        iterate(policy, number, {"direct": {"intra": 2.0, "cross": 1.0}})
    assert policy.summary()["groups"]["direct"]["choice"] == "intra"


def test_a_prompt_in_chunks_is_no_iteration() -> None:
    policy = Adaptive()
    assert policy.strategy("direct", Moment()) == "intra"
    policy.observe("direct", Moment(), 10**9, 1.0)
    assert policy.summary() == {"policy": "adaptive", "groups": {}}


def test_a_run_that_ends_early_has_no_choice() -> None:
    policy = Adaptive()
    for number in range(1, 4):
        iterate(policy, number, {"direct": {"intra": 1.0, "cross": 2.0}})
    group = policy.summary()["groups"]["direct"]
    assert group["choice"] is None
    assert [iteration["strategy"] for iteration in group["iterations"]] == ["intra", "intra", "cross"]


def test_drift_is_probed_again_only_if_configured() -> None:
    before, after = {"direct": {"intra": 1.0, "cross": 2.0}}, {"direct": {"intra": 0.9, "cross": 0.5}}
    runs = {}
    for factor in (None, 1.5):
        policy = Adaptive(factor, reprobe_iterations=2)
        runs[factor] = [iterate(policy, number, before if number < 6 else after)["direct"] for number in range(1, 12)]
    settled = ["intra", "intra", "cross", "cross", "cross"]
    assert runs[None] == [*settled, *["cross"] * 6]
    # two iterations off by a factor of 4, then the probe: Intra, Cross, and Intra from then on
    assert runs[1.5] == [*settled, "cross", "cross", "intra", "cross", "intra", "intra"]
    assert [decision["iteration"] for decision in policy.summary()["groups"]["direct"]["decisions"]] == [4, 10]


def test_a_single_slow_iteration_is_no_drift() -> None:
    policy = Adaptive(1.5, reprobe_iterations=2)
    fast, slow = {"direct": {"intra": 1.0, "cross": 2.0}}, {"direct": {"intra": 1.0, "cross": 0.5}}
    used = [iterate(policy, number, slow if number in (5, 7) else fast)["direct"] for number in range(1, 10)]
    assert used[3:] == ["cross"] * 6

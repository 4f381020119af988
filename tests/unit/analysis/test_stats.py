"""The interval of a median, held against enumeration of every case."""

from __future__ import annotations

import itertools
import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.metrics.stats import (
    CONFIDENCE,
    coverage,
    describe_interval,
    interval_high,
    interval_low,
    interval_rank,
    summarise,
)

FLOATS = st.floats(-1e6, 1e6)


@pytest.mark.parametrize(("n_values", "rank"), [(n, k) for n in range(2, 13) for k in range(1, n // 2 + 1)])
def test_coverage_counts_the_cases_in_which_the_median_lies_between(n_values: int, rank: int) -> None:
    sides = itertools.product([False, True], repeat=n_values)
    enclosed = sum(rank <= sum(below) <= n_values - rank for below in sides)
    assert coverage(n_values, rank) == pytest.approx(enclosed / 2**n_values)


@given(st.integers(6, 200))
def test_rank_is_the_narrowest_that_keeps_the_confidence(n_values: int) -> None:
    rank = interval_rank(n_values)
    assert coverage(n_values, rank) >= CONFIDENCE > coverage(n_values, rank + 1)


@given(st.lists(FLOATS, min_size=2, max_size=5))
def test_few_values_give_their_range(values: list[float]) -> None:
    series = pd.Series(values)
    assert (interval_low(series), interval_high(series)) == (min(values), max(values))


def test_one_value_has_no_interval() -> None:
    assert math.isnan(interval_low(pd.Series([1.0])))
    assert math.isnan(interval_high(pd.Series([1.0])))


@given(st.lists(FLOATS, min_size=2, max_size=40), st.randoms())
def test_interval_holds_the_median_whatever_the_order(values: list[float], random: object) -> None:
    shuffled = values.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    low, high = interval_low(pd.Series(values)), interval_high(pd.Series(values))
    assert low <= pd.Series(values).median() <= high
    assert (low, high) == (interval_low(pd.Series(shuffled)), interval_high(pd.Series(shuffled)))


def test_summary_has_a_row_per_group_and_ignores_missing_values() -> None:
    frame = pd.DataFrame({"limit": [2, 2, 2, 4, 6], "seconds": [3.0, 1.0, 2.0, 5.0, math.nan]})
    summary = summarise(frame, ["limit"], "seconds")
    assert summary.drop(columns=["low", "high"]).to_dict("list") == {
        "limit": [2, 4],
        "median": [2.0, 5.0],
        "runs": [3, 1],
    }
    assert summary.loc[0, ["low", "high"]].tolist() == [1.0, 3.0]
    assert summary.loc[1, ["low", "high"]].isna().all()


def test_interval_is_described_by_its_least_coverage() -> None:
    assert "no interval" in describe_interval([1, 1])
    assert "75%" in describe_interval([1, 3, 5])
    assert "97%" in describe_interval([6])

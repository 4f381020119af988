"""The schema of result.json names every field of the dataclasses that it is written from."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dualblade.model.roofline import ComputeTime
from dualblade.paths.page_cache import Eviction
from dualblade.paths.pinned import PinnedState
from dualblade.plan.budget import Budget
from dualblade.record.phases import Breakdown
from dualblade.run import result_schema as schema
from dualblade.targets.base import Deallocation


@pytest.mark.parametrize(
    ("written", "source", "more"),
    [
        (schema.BudgetResult, Budget, {"pinned_bytes"}),
        (schema.PinnedResult, PinnedState, set()),
        (schema.EvictionResult, Eviction, set()),
        (schema.BreakdownResult, Breakdown, set()),
        (schema.ComputeResult, ComputeTime, set()),
        (schema.DeallocationResult, Deallocation, set()),
    ],
)
def test_a_section_has_the_keys_of_its_dataclass(written: Any, source: Any, more: set[str]) -> None:
    assert set(written.__annotations__) == {field.name for field in dataclasses.fields(source)} | more

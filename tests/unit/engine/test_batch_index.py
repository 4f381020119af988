"""A batch index against a cache that really moves its rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dualblade.errors import ConfigurationError
from dualblade.model.batch_index import BatchIndex

CAPACITY, COLUMNS = 24, 6

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("select"), st.lists(st.integers(0, 99), min_size=1, max_size=COLUMNS)),
        st.tuples(st.just("crop"), st.integers(0, CAPACITY)),
    ),
    max_size=25,
)


@given(st.integers(1, COLUMNS), steps)
def test_gather_finds_what_moving_the_rows_would_have_put_there(n_sequences: int, steps: list[tuple]) -> None:
    index = BatchIndex(COLUMNS, CAPACITY)
    stored = torch.full((CAPACITY, COLUMNS, 1, 1), -1.0)
    moved = torch.empty(0, n_sequences, 1, 1)
    for action, amount in steps:
        length = len(moved)
        if action == "append" and length + amount <= CAPACITY:
            index.admit(n_sequences)
            new = torch.rand(amount, n_sequences, 1, 1)
            stored[length : length + amount] = index.spread(new)
            moved = torch.cat([moved, new])
        elif action == "select" and length:
            chosen = torch.tensor(amount) % n_sequences
            index.select(chosen, length)
            moved = moved[:, chosen]
            n_sequences = len(chosen)
        elif action == "crop" and 0 < amount < length:
            index.forget(amount)
            moved = moved[:amount]
        window = range(len(moved) // 3, len(moved))
        if window:
            assert torch.equal(index.gather(window, stored[window.start : window.stop]), moved[window.start :])


def test_rows_in_place_are_not_copied() -> None:
    index = BatchIndex(COLUMNS, CAPACITY)
    index.admit(COLUMNS)
    stored = torch.rand(4, COLUMNS, 2, 3)
    assert index.gather(range(4), stored).data_ptr() == stored.data_ptr()
    assert index.spread(stored) is stored


def test_forgetting_everything_admits_another_batch() -> None:
    index = BatchIndex(COLUMNS, CAPACITY)
    index.admit(3)
    index.select(torch.tensor([2, 0, 0]), 5)
    index.forget(0)
    index.admit(2)
    stored = torch.rand(4, COLUMNS, 1, 1)
    assert torch.equal(index.gather(range(4), stored), stored[:, :2])


def test_a_batch_that_does_not_fit_is_refused_with_the_number_to_pass() -> None:
    index = BatchIndex(4, CAPACITY)
    with pytest.raises(ConfigurationError, match=r"passes 12 sequences and the cache was made for 4; .*batch_size=12"):
        index.admit(12)
    index.admit(4)
    with pytest.raises(ConfigurationError, match=r"passes 2 sequences and the cache holds 4; reset\(\)"):
        index.admit(2)
    with pytest.raises(ConfigurationError, match=r"8 sequences do not fit .* batch_size=8"):
        index.select(torch.arange(4).repeat_interleave(2), 3)

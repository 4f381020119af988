"""LBA bind and Algorithm 2: the paper's three invariants, and spans against a device drawn block by block."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualblade.geometry import TensorId
from dualblade.plan.extents import LbaMap, bind

lba_sizes = st.sampled_from([512, 4096])
sizes = st.lists(st.integers(1, 100_000), min_size=1, max_size=20)


def bound(sizes_bytes: list[int], lba_bytes: int, first_lba: int) -> LbaMap:
    return bind(((TensorId(layer, "k"), size) for layer, size in enumerate(sizes_bytes)), lba_bytes, first_lba)


@given(sizes, lba_sizes, st.integers(0, 10**9))
def test_extents_are_aligned_disjoint_and_contiguous(sizes_bytes: list[int], lba_bytes: int, first_lba: int) -> None:
    lba_map = bound(sizes_bytes, lba_bytes, first_lba)
    owner: dict[int, TensorId] = {}
    for tensor, extent in lba_map.extents.items():
        for lba in range(extent.first_lba, extent.end_lba):
            assert owner.setdefault(lba, tensor) == tensor
    assert sorted(owner) == list(range(first_lba, first_lba + len(owner)))
    assert lba_map.size_bytes == len(owner) * lba_bytes
    for tensor, size in zip(lba_map.extents, sizes_bytes, strict=True):
        assert 0 <= lba_map.extents[tensor].n_blocks * lba_bytes - size < lba_bytes


@given(sizes, lba_sizes, st.integers(0, 100), st.data())
def test_a_span_is_the_fewest_blocks_around_the_bytes(
    sizes_bytes: list[int], lba_bytes: int, first_lba: int, data: st.DataObject
) -> None:
    lba_map = bound(sizes_bytes, lba_bytes, first_lba)
    tensor = data.draw(st.sampled_from(sorted(lba_map.extents)))
    start, end = sorted(
        data.draw(st.tuples(*[st.integers(0, sizes_bytes[tensor.layer])] * 2).filter(lambda p: p[0] != p[1]))
    )
    span = lba_map.span(tensor, start, end)
    touched = {lba_map.extents[tensor].first_lba + byte // lba_bytes for byte in (start, end - 1)}
    assert span.offset_bytes == min(touched) * lba_bytes
    assert span.size_bytes == (max(touched) - min(touched) + 1) * lba_bytes
    assert span.offset_bytes + span.lead_bytes == lba_map.extents[tensor].first_lba * lba_bytes + start


def test_bytes_outside_an_extent_have_no_span() -> None:
    lba_map = bound([4096, 4096], 4096, 0)
    with pytest.raises(ValueError, match="outside the extent"):
        lba_map.span(TensorId(0, "k"), 4000, 4097)

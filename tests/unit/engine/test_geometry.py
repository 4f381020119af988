"""KV shapes against the paper's own numbers and against arithmetic done another way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualblade.errors import ConfigurationError
from dualblade.geometry import DTYPE_BYTES, KVGeometry, LayerShape, TensorId


def opt_6_7b(capacity_tokens: int) -> KVGeometry:
    return KVGeometry.uniform(32, 32, 128, batch_size=32, capacity_tokens=capacity_tokens)


def test_opt_6_7b_is_the_papers_workload() -> None:
    tensor = TensorId(0, "k")
    assert opt_6_7b(512).tensors[tensor].size_bytes == 128 * 2**20
    assert opt_6_7b(512).tensors[tensor].row_bytes == 256 * 2**10
    assert round(opt_6_7b(511).working_set_bytes / 1e9, 2) == 8.57
    assert round(opt_6_7b(543).working_set_bytes / 1e9, 2) == 9.11


layers = st.builds(
    LayerShape, st.integers(1, 8), st.integers(1, 64), st.integers(1, 64), st.none() | st.integers(1, 40)
)
geometries = st.builds(
    KVGeometry,
    st.lists(layers, min_size=1, max_size=6).map(tuple),
    st.integers(1, 5),
    st.integers(1, 50),
    st.sampled_from(sorted(DTYPE_BYTES)),
)


@given(geometries)
def test_sizes_are_those_of_the_arrays(geometry: KVGeometry) -> None:
    item = {"float16": np.float16, "bfloat16": np.float16, "float32": np.float32}[geometry.dtype]
    arrays = {
        tensor: np.empty((geometry.capacity_tokens, *geometry.tensors[tensor].row_shape), item)
        for tensor in geometry.tensors
    }
    assert [tensor.order for tensor in arrays] == list(range(2 * geometry.n_layers))
    for tensor, array in arrays.items():
        assert geometry.tensors[tensor].size_bytes == array.nbytes
        assert geometry.tensors[tensor].row_bytes == array[0].nbytes
    assert geometry.working_set_bytes == sum(array.nbytes for array in arrays.values())
    assert geometry.largest_tensor_bytes == max(array.nbytes for array in arrays.values())


@given(geometries, st.integers(0, 60))
def test_a_query_sees_its_window_and_nothing_after_itself(geometry: KVGeometry, length_tokens: int) -> None:
    for index, layer in enumerate(geometry.layers):
        distances = [length_tokens - row for row in geometry.visible_rows(index, length_tokens)]
        seen = [distance for distance in range(length_tokens, 0, -1) if distance <= (layer.window_tokens or 10**9)]
        assert distances == seen


@pytest.mark.parametrize("wrong", [{"dtype": "int4"}, {"batch_size": 0}, {"capacity_tokens": 0}, {"layers": ()}])
def test_impossible_shapes_are_refused_with_a_sentence(wrong: dict[str, object]) -> None:
    fields: dict[str, object] = {"layers": (LayerShape(1, 1, 1),), "batch_size": 1, "capacity_tokens": 1}
    with pytest.raises(ConfigurationError, match=r"; (use|check) "):
        KVGeometry(**(fields | wrong))  # type: ignore[arg-type]

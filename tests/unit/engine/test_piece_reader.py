"""The pieces of a span hold every byte of its run once, in order, in whole blocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dualblade.geometry import TensorId
from dualblade.plan.extents import bind, pieces

BLOCK = 512


@given(st.integers(0, 20_000), st.integers(1, 20_000), st.integers(1, 8), st.integers(0, 50))
def test_pieces_cover_the_run(start_byte: int, run_bytes: int, piece_blocks: int, first_lba: int) -> None:
    tensor = TensorId(0, "k")
    span = bind([(tensor, 50_000)], BLOCK, first_lba).span(tensor, start_byte, start_byte + run_bytes)
    cut = list(pieces(span, run_bytes, piece_blocks * BLOCK))
    on_device = [byte for piece in cut for byte in range(piece.offset_bytes, piece.offset_bytes + piece.size_bytes)]
    assert on_device == list(range(span.offset_bytes, span.offset_bytes + span.size_bytes))
    assert all(piece.offset_bytes % BLOCK == piece.size_bytes % BLOCK == 0 for piece in cut)
    assert [byte for piece in cut for byte in piece.run_bytes] == list(range(run_bytes))
    for piece in cut:
        first_wanted = piece.offset_bytes + piece.lead_bytes
        assert first_wanted == first_lba * BLOCK + start_byte + piece.run_bytes.start
        assert piece.lead_bytes + len(piece.run_bytes) <= piece.size_bytes

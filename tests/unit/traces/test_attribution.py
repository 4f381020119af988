"""Commands belong to the tensor whose bytes they move, and to the operation that caused them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.trace_text import Request, write_requests
from traces.attribution import RunAttribution
from traces.decode import decode, main
from traces.errors import TraceError
from traces.schema import read

ROW = 4096
TENSORS = [
    # A file in two pieces, and an extent of the direct path.
    {"layer": 0, "kind": "k", "path": "page_cache", "device": "vda", "pieces": [[0, 8192, 8192], [8192, 65536, 8192]]},
    {"layer": 3, "kind": "v", "path": "direct", "device": "vda", "pieces": [[0, 1 << 20, 16384]]},
    {"layer": 5, "kind": "v", "path": "page_cache", "device": None, "pieces": []},
]


def operation(layer: int, op: str, iteration: int, begin_ns: int, first_row: int, rows: int) -> dict[str, Any]:
    tensor = next(tensor for tensor in TENSORS if tensor["layer"] == layer)
    return {
        "phase": "decode" if iteration else "prefill",
        "iteration": iteration,
        "layer": layer,
        "kind": tensor["kind"],
        "op": op,
        "path": tensor["path"],
        "first_row": first_row,
        "rows": rows,
        "bytes": rows * ROW,
        "storage_start_ns": begin_ns,
        "storage_end_ns": begin_ns + 40,
    }


OPERATIONS = [
    operation(0, "write", 0, 100, 0, 3),
    operation(3, "write", 0, 150, 0, 3),
    operation(0, "read", 1, 1000, 0, 3),
    operation(3, "read", 1, 1100, 0, 3),
    operation(0, "write", 1, 1200, 3, 1),
    operation(3, "write", 1, 1250, 3, 1),
    operation(0, "read", 2, 2000, 0, 4),
]


def attributed(folder: Path, requests: list[Request]) -> list[tuple[Any, ...]]:
    (folder / "extents.json").write_text(json.dumps({"schema": 1, "tensors": TENSORS}))
    pq.write_table(pa.Table.from_pylist(OPERATIONS), folder / "kv_io.parquet")
    raw = write_requests(folder / "t.txt", requests)
    decode(raw, folder / "t.parquet", attribution=RunAttribution(folder))
    return rows(folder / "t.parquet")


def rows(path: Path) -> list[tuple[Any, ...]]:
    names = ["layer", "kind", "path", "tensor_offset_bytes", "phase", "iteration"]
    table, _ = read(path, names)
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def at(device_byte: int, ns: int, rwbs: str = "R") -> Request:
    return Request(ns, ns + 50, device_byte // 512, ROW, rwbs)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (at(8192, 1010), (0, "k", "page_cache", 0, "decode", 1)),
        (at(65536 + 4096, 1010), (0, "k", "page_cache", 12288, "decode", 1)),
        (at(8192, 2010), (0, "k", "page_cache", 0, "decode", 2)),
        (at((1 << 20) + 4096, 1110), (3, "v", "direct", 4096, "decode", 1)),
        # After the last operation's end: read ahead by the kernel, and by the direct path for nobody's sake.
        (at(8192, 2041), (0, "k", "page_cache", 0, "decode", 2)),
        (at((1 << 20) + 4096, 2040), (3, "v", "direct", 4096, "decode", 1)),
        (at((1 << 20) + 4096, 2041), (3, "v", "direct", 4096, "", -1)),
        # Written back long after: by the row, not by the time.
        (at(8192 + 4096, 5000, "W"), (0, "k", "page_cache", 4096, "prefill", 0)),
        (at(65536 + 4096, 5000, "W"), (0, "k", "page_cache", 12288, "decode", 1)),
        # The direct path writes at once: by the time, since the last block of a row before is rewritten.
        (at((1 << 20) + 8192, 1260, "W"), (3, "v", "direct", 8192, "decode", 1)),
        # Before any operation on the tensor; between tensors; behind the last byte; no place at all.
        (at(8192, 50), (0, "k", "page_cache", 0, "", -1)),
        (at(16384, 1010), (-1, "", "", -1, "", -1)),
        (at((1 << 20) + 16384, 1110), (-1, "", "", -1, "", -1)),
        (at(8192, 1010, "FF"), (-1, "", "", -1, "", -1)),
    ],
)
def test_a_command_is_attributed(tmp_path: Path, request_: Request, expected: tuple[Any, ...]) -> None:
    assert attributed(tmp_path, [request_]) == [expected]


def test_a_trace_that_was_kept_is_attributed_again_in_its_runs_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = attributed(tmp_path, [at(8192, 1010), at((1 << 20) + 4096, 1110)])
    assert main([str(tmp_path / "t.txt"), str(tmp_path / "again.parquet")]) == 0
    assert rows(tmp_path / "again.parquet") == first
    assert "attributed to the run" in capsys.readouterr().out
    (tmp_path / "elsewhere").mkdir()
    assert main([str(tmp_path / "t.txt"), str(tmp_path / "elsewhere/t.parquet")]) == 0
    assert rows(tmp_path / "elsewhere/t.parquet") == [(-1, "", "", -1, "", -1)] * 2
    assert "not attributed to tensors: no extents.json and kv_io.parquet" in capsys.readouterr().out


def test_a_damaged_run_beside_a_trace_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = attributed(tmp_path, [at(8192, 1010)])
    (tmp_path / "extents.json").write_text("")
    assert main([str(tmp_path / "t.txt"), str(tmp_path / "t.parquet")]) == 1
    assert "extents.json cannot be used" in capsys.readouterr().err
    assert rows(tmp_path / "t.parquet") == before


@pytest.mark.parametrize("content", ["", "{}", '{"schema": 9}', '{"schema": 1, "tensors": [{}]}'])
def test_damaged_extents_are_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "extents.json").write_text(content)
    with pytest.raises(TraceError, match=r"extents\.json"):
        RunAttribution(tmp_path)


def test_a_damaged_log_is_named(tmp_path: Path) -> None:
    (tmp_path / "extents.json").write_text(json.dumps({"schema": 1, "tensors": TENSORS}))
    (tmp_path / "kv_io.parquet").write_bytes(b"PAR1")
    with pytest.raises(TraceError, match=r"kv_io\.parquet cannot be used"):
        RunAttribution(tmp_path)

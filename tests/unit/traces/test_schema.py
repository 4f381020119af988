"""device_io.parquet: what is written is read back, and what cannot be used is answered by a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from traces.errors import TraceError
from traces.schema import METADATA_KEY, SCHEMA, TraceInfo, read, with_info

INFO = TraceInfo(source="block_requests.bt", clock="CLOCK_MONOTONIC", valid=True, printed_events=4, counted_events=4)
ROW = {
    **dict.fromkeys(SCHEMA.names, 0),
    **dict.fromkeys(("kind", "path", "phase"), ""),
    "device": "vda",
    "op": "read",
}


def write(path: Path, rows: list[dict[str, object]], info: TraceInfo = INFO) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema=with_info(info)), path)
    return path


def test_rows_come_back_in_the_order_of_issue_with_what_is_known_about_them(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", [ROW | {"issue_ns": 7, "bytes": 1}, ROW | {"issue_ns": 5, "bytes": 2}])
    table, info = read(path, ["bytes", "device"])
    assert table.to_pydict() == {"bytes": [2, 1], "device": ["vda", "vda"]}
    assert info == INFO


def test_another_version_is_refused_by_both_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    metadata = {METADATA_KEY: json.dumps(INFO.as_dict() | {"version": 99}).encode()}
    pq.write_table(SCHEMA.with_metadata(metadata).empty_table(), path)
    with pytest.raises(TraceError, match=r"has version 99 and this program reads 1; decode the raw trace again"):
        read(path)


@pytest.mark.parametrize("content", [b"", b"PAR1 garbage", b"{}"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(content)
    with pytest.raises(TraceError, match="is damaged"):
        read(path)


def test_a_file_cut_off_in_its_rows_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", [ROW] * 1000)
    whole = path.read_bytes()
    path.write_bytes(whole[:50] + bytes(60) + whole[110:])
    with pytest.raises(TraceError, match="is damaged"):
        read(path)


def test_other_parquet_files_and_missing_ones_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(TraceError, match="does not say that it is a trace"):
        read(tmp_path / "other.parquet")
    with pytest.raises(TraceError, match="does not exist; measure with trace="):
        read(tmp_path / "none.parquet")

"""The log of a run: it reads back as recorded, and only Arrow is needed to write it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path

import pyarrow.parquet as pq

from dualblade.record.io_log import SCHEMA, Operation, write_log

VALUES = {field.name: field.name if str(field.type) == "str" else 7 for field in fields(Operation)}
OPERATION = Operation(**VALUES)  # type: ignore[arg-type]


def test_a_log_is_read_as_it_was_recorded(tmp_path: Path) -> None:
    operations = [
        OPERATION,
        replace(OPERATION, phase="", kind="zwölf", storage_end_ns=2**62),
        replace(OPERATION, iteration=-1),
    ]
    for written in (operations, []):
        write_log(iter(written), tmp_path / "kv_io.parquet")
        table = pq.read_table(tmp_path / "kv_io.parquet")
        assert table.schema.equals(SCHEMA)
        assert table.to_pylist() == [asdict(operation) for operation in written]
    assert [path.name for path in tmp_path.iterdir()] == ["kv_io.parquet"]


def test_writing_imports_no_pandas() -> None:
    """Importing pandas takes seconds on an emulated CPU, and memory in every run."""
    code = "import sys, dualblade.record.io_log as log; log.prepare_log(); sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

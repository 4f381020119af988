"""Real traces of a real disk: what a program did with it is what the trace holds."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from dualblade.linux.block_device import BlockDevice, backing_device
from dualblade.linux.fiemap import locate
from dualblade.linux.mounts import mount_of, read_mounts
from tests.support.checkout import CHECKOUT
from tests.support.harness_process import Harness, needs_root_and_cgroup
from traces.capture import check_available, tracing
from traces.decode import decode
from traces.errors import TraceError
from traces.schema import read

MIB = 1 << 20
SIZE_BYTES = 24 * MIB

try:
    check_available()
    pytestmark = needs_root_and_cgroup()
except TraceError as error:
    pytestmark = pytest.mark.skip(reason=str(error))


@pytest.fixture
def disk(disk_path: Path) -> BlockDevice:
    device = backing_device(mount_of(disk_path, read_mounts()))
    if device is None or device.disk().name.startswith("nvme"):
        pytest.skip("the checkout lies on no disk whose requests the block layer shows")
    return device.disk()


@pytest.fixture
def file(disk_path: Path) -> Iterator[int]:
    path = disk_path / "data"
    path.write_bytes(os.urandom(SIZE_BYTES))
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    os.fsync(fd)
    yield fd
    os.close(fd)


def test_a_direct_read_of_a_file_is_in_the_trace_byte_by_byte(disk_path: Path, disk: BlockDevice, file: int) -> None:
    """By FIEMAP we know where the file lies: the trace must show exactly those bytes, once each, within our time."""
    place = locate(file, 0, SIZE_BYTES)
    assert place.device == disk.name
    raw, out = disk_path / "t.txt", disk_path / "t.parquet"
    with tracing("block_requests", raw, [disk.number], disks=[disk.name], log=disk_path / "t.log") as tracer:
        begin_ns = time.monotonic_ns()
        subprocess.run(
            ["dd", f"if={disk_path / 'data'}", "of=/dev/null", "bs=1M", "iflag=direct", "status=none"], check=True
        )
        end_ns = time.monotonic_ns()
        tracer.stop()
    info = decode(raw, out)
    assert info.valid, info.reason
    commands = read(out)[0].to_pandas()
    covered = sum(_overlap(commands, piece.device_offset_bytes, piece.size_bytes) for piece in place.pieces)
    assert covered >= 0.98 * SIZE_BYTES  # the kernel may skip one probe in a hundred, and the trace says how many
    assert covered <= SIZE_BYTES
    ours = commands[
        (commands["issue_ns"] >= begin_ns) & (commands["complete_ns"] <= end_ns) & (commands["op"] == "read")
    ]
    assert ours["bytes"].sum() >= covered


def _overlap(commands: pd.DataFrame, begin: int, size: int) -> int:
    reads = commands[commands["op"] == "read"]
    ends = (reads["offset_bytes"] + reads["bytes"]).clip(upper=begin + size)
    return int((ends - reads["offset_bytes"].clip(lower=begin)).clip(lower=0).sum())


def test_a_script_that_does_not_start_is_told(disk_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(Path("traces"), disk_path / "scripts", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (disk_path / "scripts/block_requests.bt").write_text("tracepoint:no:such { }")
    monkeypatch.setattr("traces.capture.SCRIPTS", disk_path / "scripts")
    with (
        pytest.raises(TraceError, match=r"the tracer does not start: .*set trace=none"),
        tracing("block_requests", disk_path / "t.txt", disks=[], log=disk_path / "t.log"),
    ):
        pass


def test_a_traced_run_attributes_its_bytes_to_its_tensors(disk_path: Path, disk: BlockDevice) -> None:
    harness = Harness(disk_path)
    overrides = ["variant=dual_blade", "budget_ratio=0.6", "model.n_layers=8", "trace=block_requests"]
    done = harness.run(*overrides, real=True)
    assert done.returncode == 0, done.stderr
    record = harness.only_record()
    assert record.result["trace"]["printed_events"] == record.result["trace"]["counted_events"]
    names = {path.name for path in record.folder.iterdir()}
    assert names >= {"device_io.parquet", "extents.json", "trace.log"}
    assert "trace.txt" not in names
    commands = read(record.folder / "device_io.parquet")[0].to_pandas()
    reads = commands[(commands["path"] == "direct") & (commands["op"] == "read") & (commands["iteration"] == 2)]
    direct_layers = [layer for layer, path in enumerate(record.result["plan"]["layers"]) if path == "direct"]
    assert sorted(set(reads["layer"])) == direct_layers, record.result["trace"]
    asked_bytes = len(direct_layers) / 8 * record.result["bytes"]["decode"]["asked_read"] / 2
    assert reads["bytes"].sum() == pytest.approx(asked_bytes, rel=0.03)
    assert harness.left_behind() == []


def test_the_tracer_dies_with_a_killed_parent(disk_path: Path) -> None:
    program = (
        "import time; from pathlib import Path\n"
        "from traces.capture import tracing; from experiments.processes.engine import enter\n"
        "with tracing('block_requests', Path('t.txt'), disks=[], log=Path('t.log'), prefix=enter(None)) as tracer:\n"
        "    print(tracer.process.pid, flush=True); time.sleep(60)\n"
    )
    checkout = CHECKOUT
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=disk_path,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    tracer_pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{tracer_pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)

"""NVMe commands traced in a guest: what passthrough reads is in the trace, address by address."""

from __future__ import annotations

import json
import sys

from experiments.guest.testbed import Guest

# Many more than the queue holds, so that commands complete while others are issued.
OFFSET_BYTES, SIZE_BYTES, COMMAND_BYTES = 64 << 20, 32 << 20, 32 << 10

# Runs in the guest, where the checkout is read-only.
PROGRAM = f"""
import json, subprocess, tempfile
from pathlib import Path
from traces.capture import tracing
from traces.decode import decode
from traces.schema import read

controller, = (p for p in Path("/sys/class/nvme").iterdir() if (p / "serial").read_text().strip() == "DUALBLADE-A")
number = int(controller.name.removeprefix("nvme"))
disk, = (p.name for p in Path("/sys/block").glob(f"nvme{{number}}n*"))
folder = Path(tempfile.mkdtemp())
raw, log = folder / "t.txt", folder / "t.log"
with tracing("nvme_commands", raw, [number + 1], disks=[disk], log=log, attach_timeout_s=240) as tracer:
    subprocess.run(
        ["fio", "--name=x", f"--filename=/dev/{{disk.replace('nvme', 'ng', 1)}}", "--ioengine=io_uring_cmd",
         "--cmd_type=nvme", "--rw=read", "--bs={COMMAND_BYTES}", "--iodepth=16", "--thread=1",
         "--offset={OFFSET_BYTES}", "--size={SIZE_BYTES}"], check=True, capture_output=True)
    tracer.stop()
info = decode(raw, folder / "t.parquet")
rows = read(folder / "t.parquet")[0].to_pylist()
names = ("op", "queue", "offset_bytes", "bytes", "status", "depth_at_issue", "issue_ns", "complete_ns")
print(json.dumps({{"info": info.as_dict(), "rows": [[row[name] for name in names] for row in rows]}}))
"""


def test_passthrough_reads_are_traced_by_address_queue_and_depth(guest: Guest) -> None:
    status, output = guest.run([sys.executable, "-c", PROGRAM], timeout_s=400)
    assert status == 0, output
    answer = json.loads(output.splitlines()[-1])
    assert answer["info"]["valid"], answer["info"]["reason"]
    asked = range(OFFSET_BYTES, OFFSET_BYTES + SIZE_BYTES)
    reads = [row for row in answer["rows"] if row[0] == "read" and row[2] in asked and row[3] == COMMAND_BYTES]
    lacking = set(range(asked.start, asked.stop, COMMAND_BYTES)) - {row[2] for row in reads}
    assert len(reads) == len({row[2] for row in reads})
    assert len(lacking) <= answer["info"]["skipped_probes"] <= 0.01 * len(asked) / COMMAND_BYTES
    assert {row[4] for row in reads} == {0}
    assert all(row[1] >= 1 and row[5] >= 1 and row[6] < row[7] for row in reads)

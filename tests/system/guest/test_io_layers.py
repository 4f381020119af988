"""Layers traced on an NVMe SSD in a guest: a file is read through the page cache, driver and device told apart."""

from __future__ import annotations

import json
import sys

from experiments.guest.testbed import Guest

SIZE_BYTES = 4 << 20

# Runs in the guest, where the checkout is read-only.
PROGRAM = f"""
import json, mmap, os, subprocess, sys, tempfile, time
from pathlib import Path
import pyarrow.parquet as pq
from dualblade.linux.mounts import mount_of, read_mounts
from dualblade.linux.fiemap import locate
from dualblade.linux.block_device import backing_device
from experiments.tracing import script_for
from traces.formats import io_layers
from traces.capture import tracing
from traces.decode import decode

folder, file = Path(tempfile.mkdtemp()), Path("/run/dualblade/ssd_a/layers")
file.write_bytes(os.urandom({SIZE_BYTES}))
fd = os.open(file, os.O_RDWR)
os.fsync(fd)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
pieces = [(p.device_offset_bytes, p.device_offset_bytes + p.size_bytes) for p in locate(fd, 0, {SIZE_BYTES}).pieces]
disk = backing_device(mount_of(file.parent, read_mounts())).disk()
script = script_for("io_layers", [disk])
raw, log = folder / "t.txt", folder / "t.log"
with tracing(script, raw, [disk.number], disks=[disk.name], log=log, attach_timeout_s=300) as tracer:
    begin_ns = time.monotonic_ns()
    with mmap.mmap(fd, {SIZE_BYTES}) as data:
        sum(data[::4096])
        end_ns = time.monotonic_ns()
    tracer.stop()
file.unlink()
info = decode(raw, folder / "device_io.parquet")
io_layers.write(raw, folder / "io_layers.parquet", nvme=info.source == "io_layers_nvme")
commands = pq.read_table(folder / "device_io.parquet").to_pylist()
layers = pq.read_table(folder / "io_layers.parquet").to_pylist()
stamps = {{(row["offset_bytes"], row["issue_ns"]): row for row in layers}}
rows = [command | stamps[command["offset_bytes"], command["issue_ns"]] for command in commands]
names = ["op", "offset_bytes", "bytes"]
names += ["enter_ns", "queue_ns", "setup_ns", "issue_ns", "complete_ns"]
print(json.dumps({{"info": info.as_dict(), "span": [begin_ns, end_ns], "pieces": pieces,
                  "rows": [[row[name] for name in names] for row in rows]}}))
"""


def test_driver_and_device_are_told_apart_on_the_way_of_a_mapped_read(guest: Guest) -> None:
    status, output = guest.run([sys.executable, "-c", PROGRAM], timeout_s=500)
    assert status == 0, output
    answer = json.loads(output.splitlines()[-1])
    assert answer["info"]["source"] == "io_layers_nvme"
    assert answer["info"]["valid"], answer["info"]["reason"]
    begin_ns, end_ns = answer["span"]
    ours = [
        row
        for row in answer["rows"]
        if row[0] == "read" and any(start <= row[1] < stop for start, stop in answer["pieces"])
    ]
    assert sum(row[2] for row in ours) >= 0.98 * SIZE_BYTES
    ways = [row[3:] for row in ours]
    whole = [way for way in ways if begin_ns <= way[0] and way == sorted(way) and way[-1] <= end_ns]
    assert len(whole) >= 0.95 * len(ways)

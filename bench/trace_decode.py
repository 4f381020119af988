"""How fast a raw trace is decoded, and in how much memory: `python -m bench.trace_decode [COMMANDS]`.

The text is synthetic: overlapping requests of two streams, as block_requests.bt prints them. Each line counts as two
events, an issue and a completion. Decoding runs on one core, in a process of its own, whose peak memory is reported.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from dualblade.run.run_files import RunFile
from traces.decode import decode, header

DEV = 254 << 20
BATCH = 200_000


def main(commands: int) -> None:
    """Write the text, decode it, and print the time and the memory."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        raw = Path(folder) / RunFile.TRACE_TEXT
        write(raw, commands)
        child = os.fork()
        if child == 0:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            start = time.process_time()
            info = decode(raw, Path(folder) / RunFile.DEVICE_IO)
            seconds = time.process_time() - start
            peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            events = 2 * info.printed_events
            print(
                f"{events:,} events, {raw.stat().st_size:,} bytes of text: {events / seconds:,.0f} events per second "
                f"of CPU, peak memory {peak_bytes / 1e6:,.0f} MB, valid {info.valid}",
                flush=True,
            )
            os._exit(0)
        os.waitpid(child, 0)


def write(path: Path, commands: int) -> None:
    """Requests of 128 KiB, issued every 10 us on average, 50 to 800 us each."""
    random = np.random.default_rng(1)
    now_ns = 10**12
    with open(path, "wb") as out:
        out.write(header("block_requests", {"vda": {"dev": DEV, "lba_bytes": 512}}) + b"READY\n")
        for first in range(0, commands, BATCH):
            n = min(BATCH, commands - first)
            issue = now_ns + np.cumsum(random.integers(1_000, 20_000, n))
            done = issue + random.integers(50_000, 800_000, n)
            order = np.argsort(done, kind="stable")
            fields = zip(issue[order].tolist(), done[order].tolist(), (order + first).tolist(), strict=True)
            out.writelines(b"%d,%d,%d,%d,%d,131072,0,RA\n" % (i, c, DEV, s & 1, s * 256) for i, c, s in fields)
            now_ns = int(issue[-1])
        out.write(b"@events: %d\n" % commands)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000)

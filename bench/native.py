"""Native NVMe commands beside fio's io_uring_cmd engine: the same blocks, chunk and depth, in turn, in one guest.

The guest's SSD is emulated and not throttled, so the rates are those of the software. The CPU time of both is reported
too: on a real SSD, two programs at the device's own rate still differ in it.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import fio
from bench.comparison import Comparison, Pair
from bench.session import Bench
from experiments.errors import RunError
from experiments.guest import virtual_machine
from experiments.guest.emulated_ssd import EmulatedSsd
from experiments.guest.testbed import Guest
from experiments.guest.virtual_machine import Hardware

IN_GUEST = Path(__file__).with_name("native_in_guest.py")
SSD = EmulatedSsd("DUALBLADE-BENCH", 1024, 16, lba_bytes=4096, mdts_kib=512, queue_pairs=8)
HARDWARE = Hardware(cpus=4, memory_mib=2048, ssds={"bench": SSD})
SECONDS_PER_PAIR = 60.0
OPS = ("read", "write")
DEPTHS = (1, 8, 32)


def measure(pairs: int, bench: Bench, report: Callable[[str], None]) -> dict[str, Any]:
    """`pairs` rounds of reads and writes at every depth, ours and fio's one after the other."""
    fio_version = fio.version()
    with virtual_machine.running(HARDWARE, bench.journal) as machine:
        guest = Guest(machine)
        report("the guest is up")
        rounds: list[dict[str, Any]] = []
        for number in range(1, pairs + 1):
            rounds.append(_round(guest, "ours" if number % 2 else "fio"))
            report(f"pair {number}/{pairs}, GB/s: {_in_words(rounds[-1])}")
        guest.end()
        provenance = {"accelerator": machine.accelerator, "kernel": machine.kernel.release}
    return {
        "comparisons": [_comparison(op, depth, rounds) for op in OPS for depth in DEPTHS],
        "cpu_s_per_gb": {_key(op, depth): _cpu(op, depth, rounds) for op in OPS for depth in DEPTHS},
        "testbed": "guest",
        "emulated": True,
        **provenance,
        "packages": [fio_version],
    }


def _round(guest: Guest, first: str) -> dict[str, Any]:
    """By kind: rate (GB/s) and CPU seconds per GB of ours and of fio's turn, one of which comes first."""
    kinds = [f"{op}:{depth}" for op in OPS for depth in DEPTHS]
    status, said = guest.run(
        [sys.executable, str(IN_GUEST), SSD.serial, str(SSD.lba_bytes), first, *kinds], SECONDS_PER_PAIR * 4
    )
    if status:
        raise RunError(f"the bench in the guest failed: {said.strip().splitlines()[-1] if said else 'it is silent'}")
    return dict(json.loads(said.splitlines()[-1]))


def _in_words(turn: dict[str, Any]) -> str:
    return "; ".join(
        f"{kind} {found['ours']['gb_per_s']:.2f}, fio {found['fio']['gb_per_s']:.2f}" for kind, found in turn.items()
    )


def _comparison(op: str, depth: int, rounds: list[dict[str, Any]]) -> Comparison:
    found = [turn[_key(op, depth)] for turn in rounds]
    what = f"sequential {op}s by native commands, {depth} in flight, beside fio's io_uring_cmd engine"
    pairs = [Pair(kind["ours"]["gb_per_s"], kind["fio"]["gb_per_s"]) for kind in found]
    return Comparison(f"nvme_{op}_qd{depth}/fio", what, "GB/s", "higher", pairs)


def _cpu(op: str, depth: int, rounds: list[dict[str, Any]]) -> dict[str, float]:
    found = [turn[_key(op, depth)] for turn in rounds]
    return {side: statistics.median(kind[side]["cpu_s_per_gb"] for kind in found) for side in ("ours", "fio")}


def _key(op: str, depth: int) -> str:
    return f"{op}:{depth}"

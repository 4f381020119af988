"""`python -m bench [PART...]`: measures ours and theirs in turn and writes bench/results.json.

python -m bench                   every part
python -m bench fio               the direct path beside fio
python -m bench flexllmgen        our Baseline beside FlexLLMGen
python -m bench overlap           overlap_full beside the physical limit, storage and link paced
python -m bench nvme              native NVMe commands beside fio's, in a guest with an emulated SSD
"""

from __future__ import annotations

import argparse
import functools
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from bench import baseline, direct, native, overlap
from bench.results import Results
from bench.session import session
from dualblade.config.storage import StorageConfig
from dualblade.errors import DualBladeError
from experiments.guest import virtual_machine
from experiments.machine import environment
from experiments.points.point import Point
from experiments.points.sweep import compose_points

PARTS = {"fio": direct.measure, "flexllmgen": baseline.measure, "nvme": native.measure, "overlap": overlap.measure}
RESULTS = Path(__file__).with_name("results.json")
INTERRUPTED = 130


def main() -> int:
    """0: everything was measured; 1: something could not be; 130: interrupted."""
    arguments = _parse()
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _end)
    try:
        with session(_storage()) as bench:
            for part in arguments.parts or _parts_here():
                where = environment.collect(bench.folder) | environment.collect_code()
                measured = PARTS[part](arguments.pairs, bench, functools.partial(_report, part, time.monotonic()))
                results = Results.load(arguments.out).with_part(part, measured, where)
                results.write(arguments.out)
    except DualBladeError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted; parts that were complete are kept", file=sys.stderr)
        return INTERRUPTED
    print("\n".join(results.lines()))
    print(arguments.out)
    return 0


def _parts_here() -> list[str]:
    """Return all parts; without the one that needs a guest if none can be booted."""
    missing = virtual_machine.missing_tool()
    if missing:
        print(f"nvme is left out, since no guest can be booted: {missing}")
    return [part for part in PARTS if part != "nvme" or not missing]


def _storage() -> StorageConfig:
    (config,) = compose_points([])
    return Point.from_config(config).run.storage


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="ours and theirs, measured in turn")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=f"{', '.join(PARTS)}; all")
    parser.add_argument("--pairs", type=_count, default=5, help="pairs of each kind (default 5)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="results file (default bench/results.json)")
    return parser.parse_args()


def _count(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a count of pairs; give 1, 2, ...")
    return int(text)


def _report(part: str, start: float, text: str) -> None:
    print(f"[{part} {time.monotonic() - start:4.0f} s] {text}", flush=True)


def _end(signum: int, frame: FrameType | None) -> None:
    """A request to end is an exception like Ctrl-C's, so that everything is undone."""
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    sys.exit(main())

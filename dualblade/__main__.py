"""One run of the engine: `python -m dualblade RUN_DIR` reads its config.yaml and leaves what it measured.

That is result.json, kv_io.parquet (one row per tensor-level operation) and extents.json (where the tensors lay).

Progress goes to standard output as JSON lines. With `--handshake` the run stops once all its memory is allocated and
touched, says so, and goes on when a line arrives on standard input: the harness sets the memory limit in between.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import sys
import typing
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dualblade.config.run import RunConfig, WorkloadSource
from dualblade.errors import DualBladeError
from dualblade.linux.files import write_json
from dualblade.linux.libc import keep_freed_memory
from dualblade.model.replay import Replay
from dualblade.pipeline.link import open_link
from dualblade.plan.budget import measure_budget
from dualblade.record.io_log import prepare_log, write_log
from dualblade.run.fork_server import serve
from dualblade.run.result import (
    deallocation,
    direct_path,
    run_result,
    seconds_since_start,
    tensor_placements,
    verify,
)
from dualblade.run.result_schema import failed_result
from dualblade.run.run_files import RunFile
from dualblade.store import KVStore

if TYPE_CHECKING:
    from dualblade.model.generation import LoadedModel


def main(words: list[str] | None = None) -> int:
    """Run, with `--serve` fork runs, or with `--hold` only keep the libraries mapped until standard input closes."""
    arguments = _parse(words)
    if arguments.hold:
        return _hold(arguments.hold)
    if arguments.serve is not None:
        prepare_log()
        _say("ready")
        serve(socket.socket(fileno=arguments.serve), main)
        return 0
    run_dir: Path = arguments.run_dir
    variant = None
    try:
        config = RunConfig.load(run_dir / RunFile.CONFIG)
        variant = config.variant.name
        run(config, run_dir, handshake=arguments.handshake)
    except (DualBladeError, OSError) as error:
        _fail(run_dir, variant, _sentence(error))
        return 1
    _say("done")
    return 0


def _sentence(error: DualBladeError | OSError) -> str:
    if isinstance(error, DualBladeError):
        return str(error)
    return f"the system refused this run a file or a device ({error}); make room for it, or give access to it"


def _fail(run_dir: Path, variant: str | None, reason: str) -> None:
    """Report the reason, also if the result cannot be written for the same reason."""
    print(f"dualblade: {reason}", file=sys.stderr)
    with contextlib.suppress(OSError):
        if run_dir.is_dir():
            write_json(failed_result(variant, reason), run_dir / RunFile.RESULT)


def run(config: RunConfig, run_dir: Path, *, handshake: bool) -> None:
    """Allocate, wait for the limit, plan, run, and write the result."""
    model = _load_model(config)
    geometry = model.geometry if model else config.geometry()
    device = model.device if model else torch.device("cuda" if config.device.link == "cuda" else "cpu")
    link = open_link(config.device, device)
    ahead = config.device.read_ahead if config.variant.pipeline == "overlap_full" else None
    with KVStore(
        geometry,
        config.storage,
        device=device,
        copy_threads=config.device.copy_threads,
        link=link,
        read_ahead=ahead,
        keep_log=True,
    ) as store:
        workload = model.start(store, config) if model else Replay(store, config)
        prepare_log()
        startup_s = seconds_since_start()
        if handshake:
            _await_limit()
        budget = measure_budget()
        store.bind(config.variant, budget.b_pc_bytes)
        times = workload.run(_progress)
        result = run_result(config, store, budget, workload.compute, times, startup_s, workload.tokens)
        verify(result)
        operations, direct, placements = store.operations, direct_path(store), tensor_placements(store)
    result["deallocated"] = deallocation(direct)
    write_json(placements, run_dir / RunFile.EXTENTS)
    write_log(operations, run_dir / RunFile.KV_IO)
    write_json(result, run_dir / RunFile.RESULT)


def _hold(source: str) -> int:
    """Keep the libraries of such runs mapped until standard input closes."""
    if source == "model":
        from dualblade.model.generation import load_libraries

        load_libraries()
    prepare_log()
    _say("ready")
    sys.stdin.read()
    return 0


def _load_model(config: RunConfig) -> LoadedModel | None:
    """Load the model of a run that has one; only then transformers is imported and compute needs more than one core."""
    if config.workload.source == "replay":
        torch.set_num_threads(1)
        return None
    from dualblade.model.generation import LoadedModel

    model = LoadedModel(config)
    keep_freed_memory()
    return model


def _await_limit() -> None:
    """Tell the harness that this process needs no more memory, and wait until it has set the limit."""
    _say("ready", process_bytes=measure_budget().process_bytes)
    if not sys.stdin.readline():
        raise SystemExit("dualblade: the harness went away before the run began")


def _progress(phase: str, done: int, of: int) -> None:
    _say("progress", phase=phase, done=done, of=of)


def _say(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def _parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dualblade", description="one run of the engine")
    parser.add_argument("run_dir", type=Path, nargs="?", help="folder with config.yaml; results go there")
    parser.add_argument("--handshake", action="store_true", help="wait for a line on standard input before the run")
    sources = typing.get_args(WorkloadSource)
    parser.add_argument("--hold", choices=sources, help="keep the libraries of such runs in memory until input ends")
    parser.add_argument("--serve", type=int, metavar="SOCKET", help="fork a run for each request on this descriptor")
    arguments = parser.parse_args(words)
    if arguments.run_dir is None and not arguments.hold and arguments.serve is None:
        parser.error("give the run directory, or --hold")
    return arguments


if __name__ == "__main__":
    sys.exit(main())

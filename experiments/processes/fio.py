"""fio as a child that dies with the harness: it returns a job's report, or raises the reason why there is none."""

from __future__ import annotations

import functools
import json
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from experiments.errors import MachineError, RunError
from experiments.processes.engine import enter


@functools.cache
def version() -> str:
    """Return fio's name and version, as in fio-3.33.

    Raises:
        MachineError: there is no fio.
    """
    if shutil.which("fio") is None:
        raise MachineError("fio is not installed, and I/O paths are measured with it; run `make setup`")
    return subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def run(options: Sequence[str], timeout_s: float) -> dict[str, Any]:
    """Run the job that `options` describe, and return fio's report of it.

    Raises:
        RunError: fio failed, or did not end in time.
    """
    try:
        done = subprocess.run(
            [*enter(None), *command(options)], capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"fio did not end within {timeout_s:g} s: {' '.join(options)}") from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-300:]
        raise RunError(f"fio ended with code {done.returncode} ({said}); by hand: {shlex.join(command(options))}")
    return parse(done.stdout)


def command(options: Sequence[str]) -> list[str]:
    """Return the command of one job."""
    return ["fio", "--name=job", *options, "--group_reporting", "--output-format=json"]


def parse(output: str) -> dict[str, Any]:
    """Return the only job of fio's JSON report, which warnings may precede."""
    report = json.loads(output[output.index("{") :])
    return dict(report["jobs"][0])

"""Requests to end: a harness that another command started tidies up, and that command waits for it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.processes.engine import PROJECT

# In the place of the harness, in the current folder: measures until it is asked to end, then tidies up for a while.
HARNESS = """
import signal, time
from pathlib import Path
from experiments.processes.signals import undo_on_request
undo_on_request()
try:
    Path("measuring").touch()
    time.sleep(600)
finally:
    time.sleep(0.4)
    Path("tidied_up").touch()
"""
# All experiments, of which the first is measured like that.
ALL = """
import sys, time
from pathlib import Path
from experiments import run

class Session:
    def __enter__(self):
        return self

    def measure(self, *_):
        Path("measuring").touch()
        time.sleep(600)

    def __exit__(self, *_):
        time.sleep(0.4)
        Path("tidied_up").touch()

run.Session, run.enter_scope = Session, lambda words: None
sys.argv[1:] = ["+experiment=all"]
sys.exit(run.main())
"""
STARTERS = {
    "all": ["-P", "-c", ALL],
    "figures": ["-P", "-m", "analysis.figures"],
}


@pytest.fixture(params=list(STARTERS))
def starter(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command that has started the harness above, which is measuring."""
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/__init__.py").write_text(f"__path__.append({str(PROJECT / 'experiments')!r})")
    (tmp_path / "experiments/run.py").write_text(HARNESS)
    with started(STARTERS[request.param], tmp_path) as process:
        yield process


@contextlib.contextmanager
def started(arguments: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`python ARGUMENTS` in a folder, from the moment at which the harness there is measuring."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen([sys.executable, *arguments], cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            wait_for(folder / "measuring")
            yield process
        finally:
            process.kill()
            process.wait()


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path.name}"
        time.sleep(0.02)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_request_to_end_is_passed_on_and_the_tidying_up_waited_for(
    starter: subprocess.Popen[bytes], tmp_path: Path, name: str
) -> None:
    starter.send_signal(signal.Signals[name])
    starter.wait(timeout=120)
    assert (tmp_path / "tidied_up").exists()
    assert starter.returncode == 128 + signal.Signals[name]
    assert "phase_breakdown" not in (tmp_path / "log").read_text()  # the second experiment of all


def test_a_second_request_does_not_cut_the_tidying_up_short(tmp_path: Path) -> None:
    """As timeout(1) sends it: to the command, and to its whole group."""
    with started(["-c", HARNESS], tmp_path) as harness:
        for _ in range(2):
            harness.terminate()
            time.sleep(0.2)
        harness.wait(timeout=120)
    assert (tmp_path / "tidied_up").exists()


@pytest.mark.parametrize("starter", ["figures"], indirect=True)
def test_a_killed_command_leaves_no_harness(starter: subprocess.Popen[bytes], tmp_path: Path) -> None:
    starter.kill()
    wait_for(tmp_path / "tidied_up")


def test_what_was_ignored_stays_ignored() -> None:
    code = (
        "import signal; from experiments.processes.signals import undo_on_request; undo_on_request(); "
        "signal.raise_signal(signal.SIGHUP); print('goes on')"
    )
    done = subprocess.run(
        ["nohup", sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT, check=True
    )
    assert done.stdout == "goes on\n"

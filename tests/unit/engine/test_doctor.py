"""The doctor's verdicts, each against a machine that has or lacks what is asked for."""

from __future__ import annotations

import errno
import os
import platform
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from dualblade.doctor import probes, report
from tests.support.checkout import CHECKOUT

TMPFS = Path("/dev/shm")
COLOUR = "\033["


@pytest.mark.parametrize(
    ("release", "ok"),
    [
        ("5.4.0-150-generic", False),
        ("5.10.0", False),
        ("5.11.0+", True),
        ("6.8.0-31-generic", True),
        ("6.18.44-custom-v6", True),
        ("7.0-rc1", True),
    ],
)
def test_the_kernel_is_new_enough(monkeypatch: pytest.MonkeyPatch, release: str, ok: bool) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    assert report.check_kernel().ok is ok


def test_a_refused_ring_names_its_cure_and_fails_the_visit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> bool:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(probes, "has_passthrough", refuse)
    assert report.main([str(CHECKOUT)]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "io_uring " in line]
    assert line.split()[0] == "missing"
    assert "Operation not permitted; sysctl kernel.io_uring_disabled=0" in line


def test_what_only_adds_does_not_fail_the_visit(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [report.Check("there", True, "found")]
    lacking = [report.Check("lacking", False, "not found", "get it")]
    monkeypatch.setattr(report, "needed", lambda folders: there)
    monkeypatch.setattr(report, "adding", lambda: lacking)
    assert report.main([]) == 0
    monkeypatch.setattr(report, "needed", lambda folders: lacking)
    assert report.main([]) == 1


def test_every_missing_line_says_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    report.main([str(CHECKOUT)])
    lines = capsys.readouterr().out.splitlines()
    verdicts = {line.split()[0] for line in lines if line.startswith(" ")}
    assert verdicts <= {"OK", "missing"}
    for line in lines:
        if line.split()[0] == "missing":
            assert line.partition("; ")[2], line


def test_direct_io_on_a_file_system_in_memory_is_missing() -> None:
    mounts = Path("/proc/mounts").read_text().splitlines()
    if not any(line.split()[1:3] == [str(TMPFS), "tmpfs"] for line in mounts):
        pytest.skip(f"{TMPFS} is no tmpfs here")
    assert not report.check_direct_io(TMPFS).ok


def test_direct_io_where_the_user_may_not_write_is_missing(tmp_path: Path) -> None:
    check = report.check_direct_io(tmp_path / "absent")
    assert not check.ok
    assert "No such file" in check.found


def test_a_module_that_is_missing_is_named() -> None:
    check = report._modules("modules", ("json", "no_such_module"), "both")
    assert (check.ok, check.found) == (False, "without no_such_module")


def test_folders_on_one_disk_are_looked_at_once(tmp_path: Path) -> None:
    (tmp_path / "kv").mkdir()
    assert report._one_a_disk([tmp_path / "results" / "new", tmp_path / "kv"]) == [tmp_path]


def test_colour_on_a_terminal_only() -> None:
    assert COLOUR in on_terminal({})
    assert COLOUR not in on_terminal({"NO_COLOR": "1"})
    piped = subprocess.run(doctor_command(), cwd=CHECKOUT, capture_output=True, text=True, check=False).stdout
    assert "needed by make figures" in piped
    assert COLOUR not in piped


def doctor_command() -> list[str]:
    return [sys.executable, "-m", "dualblade.doctor"]


def on_terminal(environment: dict[str, str]) -> str:
    """What the doctor writes to a terminal: a pseudo-terminal whose output fits its buffer."""
    ours, theirs = pty.openpty()
    clean = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    process = subprocess.Popen(doctor_command(), cwd=CHECKOUT, stdout=theirs, env=clean | environment)
    os.close(theirs)
    output = b""
    try:
        while part := os.read(ours, 4096):
            output += part
    except OSError:  # EIO: the other side is closed (pty(7))
        pass
    finally:
        process.wait(timeout=60)
        os.close(ours)
    return output.decode()

"""The journal: nothing outlives the harness but what the next one clears; and the lock: one harness at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.errors import MachineError
from experiments.machine.journal import STATE_VARIABLE, Journal, exclusive, state_dir
from experiments.processes.engine import PROJECT

# Does two things that want undoing, says so, and waits for the worst.
INTERRUPTED = """
import sys, time
from pathlib import Path
from experiments.machine.journal import Journal
folder = Path(sys.argv[1])
setting = folder / "setting"
journal = Journal(folder / "journal.json")
with journal.undo("write_value", str(setting), "before"):
    setting.write_text("changed")
    with journal.undo("remove_tree", str(folder / "scratch")):
        (folder / "scratch").mkdir()
        (folder / "scratch" / "file").touch()
        print("ready", flush=True)
        time.sleep(60)
"""


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )


def wait_for_line(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline()


def test_leaving_the_block_undoes(tmp_path: Path) -> None:
    setting, scratch = tmp_path / "setting", tmp_path / "scratch"
    setting.write_text("before")
    journal = Journal(tmp_path / "journal.json")
    with journal.undo("write_value", str(setting), "before"), journal.undo("remove_tree", str(scratch)):
        setting.write_text("changed")
        (scratch / "deep").mkdir(parents=True)
    assert setting.read_text() == "before"
    assert not scratch.exists()
    assert Journal(tmp_path / "journal.json").clear() == 0


def test_an_exception_undoes_and_goes_on_up(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    with (
        pytest.raises(KeyboardInterrupt),
        Journal(tmp_path / "journal.json").undo("remove_tree", str(scratch)),
    ):
        scratch.mkdir()
        raise KeyboardInterrupt
    assert not scratch.exists()


def test_what_was_never_made_is_undone_all_the_same(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.json")
    with (
        journal.undo("remove_tree", str(tmp_path / "never")),
        journal.undo("destroy_cgroup", 1, str(tmp_path / "never")),
        journal.undo("write_value", str(tmp_path / "never" / "setting"), "1"),
    ):
        pass
    assert journal.clear() == 0


def test_the_next_one_clears_up_after_one_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "setting").write_text("before")
    process = python(INTERRUPTED, str(tmp_path))
    wait_for_line(process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / "setting").read_text() == "changed"
    assert Journal(tmp_path / "journal.json").clear() == 2
    assert (tmp_path / "setting").read_text() == "before"
    assert not (tmp_path / "scratch").exists()


def test_what_cannot_be_cleared_stays_in_the_journal_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.json"
    blocked = tmp_path / "file" / "setting"
    (tmp_path / "file").touch()
    with (
        pytest.raises(MachineError, match=r"write_value .*file/setting 1.*by hand"),
        Journal(path).undo("write_value", str(blocked), "1"),
    ):
        pass
    (tmp_path / "file").unlink()
    assert Journal(path).clear() == 1


@pytest.mark.parametrize("content", ["", "{}", '""', "[3]", '[["nix", "a"]]', '[["remove_tree", "a'])
def test_a_damaged_journal_is_named_and_not_forgotten(tmp_path: Path, content: str) -> None:
    path = tmp_path / "journal.json"
    path.write_text(content)
    with pytest.raises(MachineError, match=rf"^{path} is damaged.*delete the file$"):
        Journal(path)
    assert path.read_text() == content


def test_a_second_harness_is_told_who_is_first(tmp_path: Path) -> None:
    with exclusive(tmp_path / "lock"), pytest.raises(MachineError, match=f"process {os.getpid()}"):
        contextlib.ExitStack().enter_context(exclusive(tmp_path / "lock"))


def test_a_killed_harness_holds_no_lock(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from experiments.machine.journal import exclusive\n"
        "with exclusive(Path(sys.argv[1])): print('ready', flush=True); time.sleep(60)"
    )
    process = python(code, str(tmp_path / "lock"))
    wait_for_line(process)
    with pytest.raises(MachineError), exclusive(tmp_path / "lock"):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    with exclusive(tmp_path / "lock"):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_another_users_journal_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(tmp_path, 12345, 12345)
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path))
    with pytest.raises(MachineError, match="belongs to another user"):
        state_dir()

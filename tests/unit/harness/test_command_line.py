"""The command line of `experiments.run`: its words are sorted once, wherever they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hydra.errors import HydraException

from dualblade.errors import ConfigurationError
from experiments.command_line import CommandLine
from experiments.points.sweep import Sweep
from tests.support.checkout import CHECKOUT


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["-m", "scale=16", "repetition=0,1"], CommandLine(["scale=16", "repetition=0,1"], multirun=True)),
        (["scale=16", "--multirun", "+a.b=1"], CommandLine(["scale=16", "+a.b=1"], multirun=True)),
        (["storage=nvme", "--dry-run"], CommandLine(["storage=nvme"], dry_run=True)),
        (["--run", "~trace"], CommandLine(["~trace"])),
        ([], CommandLine([])),
    ],
)
def test_options_stand_anywhere(words: list[str], command: CommandLine) -> None:
    assert CommandLine.parse(words) == command


@pytest.mark.parametrize(
    "words", [["--help"], ["-c", "job"], ["a=1", "--cfg", "job"], ["-sc", "install=bash"], ["--info=all"]]
)
def test_what_hydra_answers_is_left_to_it(words: list[str]) -> None:
    assert CommandLine.parse(words).asks_hydra


@pytest.mark.parametrize("words", [["--nonsense"], ["scale=8", "-cn", "other"]])
def test_an_unknown_option_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="is not an option here"):
        CommandLine.parse(words)


def test_files_of_a_users_own_folder_can_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "my conf/variant").mkdir(parents=True)
    (tmp_path / "my conf/variant/mine.yaml").write_text("name: mine\n")
    command = CommandLine.parse(["--config-dir", str(tmp_path / "my conf"), "-m", "variant=mine,baseline"])
    sweep = Sweep(command.overrides)
    assert [sweep.config(point)["variant"]["name"] for point in sweep.points] == ["mine", "baseline"]


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not a folder"):
        CommandLine.parse(["-cd", str(tmp_path / "nowhere")])


def test_several_values_need_a_multirun_or_an_experiment() -> None:
    with pytest.raises(HydraException, match="add --multirun"):
        Sweep(["memory_gb=2,4"], multirun=False)
    assert len(Sweep(["+experiment=hit_rate", "memory_gb=2,4"], multirun=False).points) == 2 * 4


@pytest.mark.parametrize(
    ("words", "number"), [(["variant=glob(*)"], 4), (["memory_gb=range(2,5)"], 3), (["memory_gb=choice(2,3)"], 2)]
)
def test_a_sweep_may_use_hydras_grammar(words: list[str], number: int) -> None:
    assert len(Sweep(words).points) == number


def test_a_sweep_without_a_list_of_values_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has no list of values"):
        Sweep(["memory_gb=interval(1,2)"])


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--help"], "Override anything in the config"),
        (["--cfg", "job", "memory_gb=3"], "memory_gb: 3"),
        (["-sc", "install=bash"], "COMPREPLY"),
    ],
)
def test_hydra_answers_its_own_options(words: list[str], answer: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments.run", *words]
    environment = {"PYTHONPATH": str(CHECKOUT), "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert answer in done.stdout
    assert not list(tmp_path.iterdir())

"""A user's mistake is answered by one sentence that names what there is."""

from __future__ import annotations

import pytest

from dualblade.errors import DualBladeError
from experiments import run
from experiments.hydra_errors import COMPOSE_ERRORS, error_sentence
from experiments.points.sweep import CONF, compose_points
from experiments.progress import duration, summary


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


@pytest.mark.parametrize(
    ("overrides", "answer"),
    [
        (
            ["variant=foo"],
            "variant=foo is not known; use one of baseline, cachepolicy_only, dual_blade, nvme_direct_only",
        ),
        (["+experiment=foo"], f"experiment=foo is not known; use one of {', '.join(choices('experiment'))}"),
        (["memory=4"], "memory is not a setting; did you mean memory_gb?"),
        (["storage.queue_dept=4"], "storage.queue_dept is not a setting; did you mean storage.queue_depth?"),
        (["pipeline=cross"], "pipeline is not a setting; did you mean variant.pipeline?"),
        (["storage.pace.speed=4"], "storage.pace.speed is not a setting; nor is storage.pace"),
        (
            ["storage.pace.read_gb_per_s=4"],
            "storage.pace.read_gb_per_s is not a setting here; "
            "it belongs to storage=paced or paced_ssd_a or paced_ssd_b",
        ),
        (
            ["emulated_ssd.read_mb_per_s=4"],
            "emulated_ssd.read_mb_per_s is not a setting here; it belongs to storage=ssd_a or ssd_b",
        ),
        (
            ["+experiment=all", "testbed=foo"],
            "testbed=foo cannot be used with +experiment=all; use one of local, guest",
        ),
        (
            ["+experiment=all", "testbed=local,guest"],
            "testbed=local,guest cannot be used with +experiment=all; use one of local, guest",
        ),
        (["storage=block"], "storage.block_device has no value; give it one, as in storage.block_device=VALUE"),
    ],
)
def test_a_mistake_is_answered_by_what_there_is(overrides: list[str], answer: str) -> None:
    with pytest.raises((*COMPOSE_ERRORS, DualBladeError)) as mistake:
        compose_points(overrides)
    assert error_sentence(mistake.value) == answer


def test_a_mistake_in_all_experiments_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["run.py", "+experiment=all", "testbed=foo"])
    monkeypatch.setattr(run, "undo_on_request", lambda: None)
    assert run.main() == 1
    assert capsys.readouterr().err.startswith("experiments.run: testbed=foo cannot be used")


@pytest.mark.parametrize("overrides", [["memory_gb=[1"], ["variant=baseline(1)"], ["variant=3"]])
def test_what_cannot_be_parsed_is_answered_on_one_line(overrides: list[str]) -> None:
    with pytest.raises(COMPOSE_ERRORS) as mistake:
        compose_points(overrides)
    assert error_sentence(mistake.value)
    assert "\n" not in error_sentence(mistake.value)


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.2, "3 s"), (89, "89 s"), (100, "2 min"), (3600, "60 min"), (9000, "2.5 h")]
)
def test_durations_are_said_as_a_person_would(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_measurement_is_described_without_its_cold_iteration() -> None:
    result = {"prefill_s": 1.0, "decode_s": [9.0, 0.2, 0.4], "hit_rate": {"decode": 0.5}}
    assert summary(result) == "prefill 1.00 s, decode 0.300 s/token, hit rate 50.0%"


def test_one_cold_iteration_is_better_than_nothing_and_no_hit_rate_is_none() -> None:
    result = {"prefill_s": 1.0, "decode_s": [9.0], "hit_rate": {"decode": None}}
    assert summary(result) == "prefill 1.00 s, decode 9.000 s/token"

"""conf/: every choice gives a run the engine accepts, with the sizes that are published elsewhere."""

from __future__ import annotations

import dataclasses
import functools
import operator
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.figures import io_paths
from analysis.figures.registry import FIGURES
from dualblade.config.device import DeviceConfig
from dualblade.config.run import ModelConfig, VariantConfig, WorkloadConfig
from dualblade.config.storage import StorageConfig
from dualblade.model.questions import load_task
from dualblade.units import GB, GIB
from experiments.points.any_point import AnyPoint, from_config
from experiments.points.point import Point
from experiments.points.sweep import CONF, Sweep, compose_points

ALL = ["+experiment=all"]
VARIANTS = ["baseline", "cachepolicy_only", "nvme_direct_only", "dual_blade"]
WRANGLING = {
    "em_fodors_zagats": (744, 3),
    "em_beer": (592, 3),
    "em_itunes_amazon": (529, 3),
    "em_walmart_amazon": (748, 3),
    "em_amazon_google": (876, 3),
    "em_dblp_acm": (1274, 3),
    "em_dblp_googlescholar": (1209, 3),
    "di_restaurant": (123, 5),
    "di_buy": (488, 10),
    "ed_hospital": (200, 3),
}


@functools.cache
def point(*overrides: str) -> Point:
    (config,) = compose_points(overrides)
    return Point.from_config(config)


@functools.cache
def sweep(experiment: str) -> list[AnyPoint]:
    return [from_config(config) for config in compose_points([f"+experiment={experiment}"])]


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


@pytest.mark.parametrize("choice", [f"{g}={c}" for g in ("variant", "model", "workload", "device") for c in choices(g)])
def test_every_choice_is_accepted_under_its_own_name(choice: str) -> None:
    group, name = choice.split("=")
    assert getattr(point(choice).run, group).name == name


@pytest.mark.parametrize(
    ("group", "section"),
    [
        ("variant", VariantConfig),
        ("model", ModelConfig),
        ("workload", WorkloadConfig),
        ("storage", StorageConfig),
        ("device", DeviceConfig),
    ],
)
def test_every_setting_of_a_section_is_in_each_of_its_files(group: str, section: type) -> None:
    """What a file, and those that it builds on, leave out could not be overridden on the command line."""
    settings = {field.name for field in dataclasses.fields(section)}
    for choice in choices(group):
        assert set(read_choice(group, choice)) == settings, choice


def read_choice(group: str, choice: str) -> dict[str, object]:
    """What a choice's file sets, over what the files do that it builds on."""
    content = yaml.safe_load((CONF / group / f"{choice}.yaml").read_text())
    below = [read_choice(group, name) for name in content.pop("defaults", []) if name != "_self_"]
    return functools.reduce(operator.or_, [*below, content.get(group, content)])


def test_a_block_device_has_to_be_named_by_the_user() -> None:
    run = point("storage=block", "storage.block_device=/dev/null", "storage.serial=none").run
    assert run.storage.backend == "block"


# Published totals and vocabularies (model cards); `tied` models share the two embedding matrices.
@pytest.mark.parametrize(
    ("name", "total", "vocabulary", "embeddings"),
    [
        ("opt_1_3b", 1.316e9, 50272, 1),
        ("opt_6_7b", 6.658e9, 50272, 1),
        ("opt_13b", 12.85e9, 50272, 1),
        ("llama_3_1_8b", 8.030e9, 128256, 2),
        ("qwen3_8b", 8.191e9, 151936, 2),
        ("smollm2_135m", 134.5e6, 49152, 1),
    ],
)
def test_a_models_shape_adds_up_to_its_published_size(
    name: str, total: float, vocabulary: int, embeddings: int
) -> None:
    model = point(f"model={name}").run.model
    parameters = model.n_layers * model.layer_parameters + embeddings * vocabulary * model.hidden_size
    assert parameters == pytest.approx(total, rel=0.005)


def test_the_papers_working_set() -> None:
    assert point("scale=1").working_set_bytes == pytest.approx(9.11 * GB, rel=0.001)


def test_the_working_set_of_cheops25() -> None:
    assert point("workload=cheops25", "scale=1").working_set_bytes == pytest.approx(16 * GIB, rel=0.003)


def test_the_papers_working_set_of_the_hospital_task() -> None:
    assert point("workload=ed_hospital", "scale=1").working_set_bytes == pytest.approx(1.58 * GIB, rel=0.003)


def test_the_ten_wrangling_tasks_have_the_papers_lengths() -> None:
    workloads = {name: point(f"workload={name}").run.workload for name in WRANGLING}
    assert {name: (w.prompt_tokens, w.generated_tokens) for name, w in workloads.items()} == WRANGLING


def test_questions_are_asked_about_at_the_published_lengths_with_the_papers_share_of_page_cache() -> None:
    names = [name for name in choices("workload") if name.startswith("records_") and not name.endswith("_sample")]
    assert len(names) == 8
    for name in names:
        replay = point(f"workload={name.removeprefix('records_')}", "scale=1")
        records = point(f"workload={name}", "model=smollm2_135m", "records_dir=elsewhere")
        workload = records.run.workload
        assert (workload.prompt_tokens, workload.generated_tokens) == WRANGLING[replay.run.workload.name]
        assert records.budget_ratio == pytest.approx(3 * GB / replay.working_set_bytes, abs=0.005)
        assert workload.records is not None
        assert workload.records.path.startswith("elsewhere/")


def test_questions_are_the_same_wherever_they_lie() -> None:
    hashes = {point("workload=records_em_beer", f"records_dir={place}").config_hash for place in ("here", "/there")}
    assert len(hashes) == 1


def test_text_has_a_prompt_for_every_sequence() -> None:
    workload = point("workload=text", "model=smollm2_135m").run.workload
    assert workload.source == "model"
    assert workload.prompts is not None
    lines = (CONF.parent / Path(workload.prompts)).read_text().splitlines()
    assert len(lines) >= workload.batch_size
    assert all(lines)


@pytest.mark.parametrize("experiment", [name for name in choices("experiment") if name != "all"])
def test_an_experiment_sweeps_distinct_points_under_its_own_name(experiment: str) -> None:
    points = sweep(experiment)
    assert {point.config["experiment"] for point in points} == {experiment}
    assert len({point.config_hash for point in points}) == len(points) > 1


def test_the_full_sweep_interleaves_the_variants_and_repeats_slowest() -> None:
    points = sweep("e2e_latency")
    assert [point.run.variant.name for point in points[:8]] == VARIANTS * 2
    repetitions = [point.repetition for point in points]
    assert repetitions == sorted(repetitions)
    assert set(repetitions) == {0, 1, 2, 3, 4}
    limits = {point.memory_gb for point in points}
    assert limits >= {float(gb) for gb in range(2, 12)}


def test_thrashing_and_hit_rate_measure_nothing_that_the_full_sweep_does_not_hold() -> None:
    full = {point.config_hash for point in sweep("e2e_latency")}
    for experiment in ("thrashing", "hit_rate"):
        assert {point.config_hash for point in sweep(experiment)} < full


def test_the_embedded_sweep_has_all_variants_at_seven_limits_or_more() -> None:
    points = sweep("default")
    limits = {name: {p.memory_gb for p in points if p.run.variant.name == name} for name in VARIANTS}
    assert all(len(gb) >= 7 for gb in limits.values())
    assert {point.run.model.name for point in points} == {"opt_6_7b"}


@pytest.fixture(scope="module")
def all_points() -> dict[str, list[dict[str, Any]]]:
    """What `+experiment=all` runs on each testbed; composing it takes seconds."""
    return {"local": compose_points(ALL), "guest": compose_points([*ALL, "testbed=guest"])}


def test_all_is_every_figures_experiment_at_reduced_size(all_points: dict[str, list[dict[str, Any]]]) -> None:
    points = [*all_points["local"], *all_points["guest"]]
    measured = {str(config["experiment"]) for config in points}
    from_the_default_sweeps = {"thrashing", "e2e_latency", "hit_rate", "e2e_latency_guest", "hit_rate_guest"}
    assert set(FIGURES) - measured == from_the_default_sweeps
    assert {config["repetition"] for config in points} == {0}


def test_all_asks_about_records_that_are_here(all_points: dict[str, list[dict[str, Any]]]) -> None:
    points = [from_config(config) for config in all_points["local"] if config["experiment"] == "wrangling_records"]
    workloads = [point.run.workload for point in points if isinstance(point, Point)]
    assert {workload.name for workload in workloads} == {"records_ed_sample", "records_em_sample"}
    for workload in workloads:
        assert workload.records is not None
        records = dataclasses.replace(workload.records, path=str(CONF.parent / workload.records.path))
        assert len(load_task(records, workload.batch_size).questions) == workload.batch_size


def test_all_measures_io_paths_where_their_figure_holds_size_and_depth(
    all_points: dict[str, list[dict[str, Any]]],
) -> None:
    grids = [config["io"] for configs in all_points.values() for config in configs if "io" in config]
    assert grids
    assert all(io_paths.OVER_DEPTH.wanted in grid["block_kib"] for grid in grids)
    assert all(io_paths.OVER_SIZE.wanted in grid["queue_depths"] for grid in grids)


def test_all_in_a_guest_is_on_its_ssds_alone(all_points: dict[str, list[dict[str, Any]]]) -> None:
    configs = all_points["guest"]
    assert {config["testbed"]["name"] for config in configs} == {"guest"}
    assert {config["storage"]["name"] for config in configs} <= {"ssd_a", "ssd_b"}
    assert all(from_config(config).guest for config in configs)


def test_an_override_narrows_an_experiment() -> None:
    configs = compose_points(["+experiment=e2e_latency", "variant=baseline", "repetition=0"])
    assert len(configs) == len({config["memory_gb"] for config in configs}) > 7


def test_every_point_is_measured_once_before_any_again() -> None:
    configs = compose_points(["variant=baseline,dual_blade", "memory_gb=2,4", "repetition=0,1"])
    assert [config["repetition"] for config in configs] == [0] * 4 + [1] * 4


@pytest.mark.parametrize("words", [["scale=16", "repetition=0,1"], ["repetition=0,1", "scale=16"]])
def test_repetitions_are_the_outermost_loop(words: list[str]) -> None:
    points = Sweep([*words, "memory_gb=2,4"]).points
    assert [set(point) for point in points] == [
        {"scale=16", f"memory_gb={memory}", f"repetition={repetition}"} for repetition in (0, 1) for memory in (2, 4)
    ]

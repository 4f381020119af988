"""Benchmark records as questions: both public formats, the choice of a batch, and files that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualblade.config.run import RecordsConfig
from dualblade.errors import ConfigurationError
from dualblade.model.questions import load_task
from experiments.points.sweep import CONF

PAIR = "COL title VAL a tall tale COL year VAL \tCOL title VAL tall tale , a COL year VAL 1999 \t{}\n"
TABLE = "Name,City\nwest ward,elmstead\nwext ward,elmstead\n,marlow\n"
CLEAN = "tid,attribute,correct_val\n0,Name,west ward\n0,City,elmstead\n1,Name,west ward\n1,City,elmstead\n2,Name,\n"


def matching(folder: Path, examples: int = 10, seed: int = 0) -> RecordsConfig:
    return RecordsConfig("entity_matching", str(folder), examples, seed)


def write_pairs(folder: Path, n_same: int = 3, n_different: int = 5) -> None:
    lines = [f"COL title VAL {n} \tCOL title VAL {n} \t{int(n < n_same)}\n" for n in range(n_same + n_different)]
    (folder / "valid.txt").write_text("".join(line.replace("title", "name") for line in lines))
    (folder / "test.txt").write_text("".join(lines))


def test_a_pair_is_shown_without_its_missing_values(tmp_path: Path) -> None:
    for name in ("valid.txt", "test.txt"):
        (tmp_path / name).write_text(PAIR.format(1))
    (question,) = load_task(matching(tmp_path), 1).questions
    assert question.text == "A: title: a tall tale\nB: title: tall tale , a, year: 1999"
    assert question.answer == "same"


def test_a_batch_is_half_of_each_answer_and_its_examples_are_other_records(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    task = load_task(matching(tmp_path, examples=4), 4)
    assert sorted(question.answer for question in task.questions) == ["different"] * 2 + ["same"] * 2
    assert sorted(example.answer for example in task.examples) == ["different"] * 2 + ["same"] * 2
    assert all("title" in question.text for question in task.questions)
    assert all("name" in example.text for example in task.examples)


@pytest.mark.parametrize("seed", range(3))
def test_a_seed_stands_for_a_choice_of_records(tmp_path: Path, seed: int) -> None:
    write_pairs(tmp_path, 40, 40)
    once, again = (load_task(matching(tmp_path, seed=seed), 6) for _ in range(2))
    assert once == again
    assert once.questions != load_task(matching(tmp_path, seed=seed + 1), 6).questions


def test_the_commoner_answer_fills_a_batch_that_the_rarer_cannot(tmp_path: Path) -> None:
    write_pairs(tmp_path, n_same=1, n_different=5)
    answers = [question.answer for question in load_task(matching(tmp_path), 6).questions]
    assert answers.count("same") == 1
    assert len(answers) == 6


@given(
    st.dictionaries(
        st.text("abcdefgh_", min_size=1, max_size=8),
        st.text("COL VAL12.,'\"", max_size=12).map(lambda text: text.replace("COL", "").strip()),
        min_size=1,
        max_size=4,
    ).filter(lambda record: any(record.values()))
)
def test_any_record_comes_back_from_its_serialised_form(
    tmp_path_factory: pytest.TempPathFactory, record: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    text = " ".join(f"COL {name} VAL {value}" for name, value in record.items())
    for name in ("valid.txt", "test.txt"):
        (folder / name).write_text(f"{text} \t{text} \t0\n")
    (question,) = load_task(matching(folder), 1).questions
    shown = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in record.items() if value)
    assert question.text == f"A: {shown}\nB: {shown}"


def test_a_cell_is_wrong_where_the_clean_table_has_another_value(tmp_path: Path) -> None:
    (tmp_path / "clinics.csv").write_text(TABLE)
    (tmp_path / "clinics_clean.csv").write_text(CLEAN)
    task = load_task(RecordsConfig("error_detection", str(tmp_path)), 2)
    assert {question.text: question.answer for question in task.questions} == {
        "Name: wext ward": "yes",
        "City: elmstead": "no",
    }
    assert {example.text: example.answer for example in task.examples} == {
        "Name: west ward": "no",
        "City: elmstead": "no",
    }


@pytest.mark.parametrize("name", ["records_em_sample", "records_ed_sample"])
def test_the_shipped_records_are_of_the_public_formats(name: str) -> None:
    task: Literal["entity_matching", "error_detection"] = "entity_matching" if "_em_" in name else "error_detection"
    loaded = load_task(RecordsConfig(task, str(CONF / "workload/records" / name.removeprefix("records_"))), 4)
    assert len({question.answer for question in loaded.questions}) == 2
    assert len(loaded.examples) >= 4


@pytest.mark.parametrize(
    ("files", "task", "sentence"),
    [
        ({}, "entity_matching", r"valid.txt cannot be read: No such file .* records_dir=FOLDER"),
        ({"valid.txt": "COL a VAL b\t1\n"}, "entity_matching", "line 1 of .*valid.txt is no pair of records"),
        ({"valid.txt": PAIR.format(2)}, "entity_matching", "line 1 of .*valid.txt is no pair of records"),
        (
            {"valid.txt": PAIR.format(1), "test.txt": ""},
            "entity_matching",
            "0 records to ask about and the batch has 2",
        ),
        ({"valid.txt": b"\xff\xfe\x00"}, "entity_matching", "not text in UTF-8"),
        ({}, "error_detection", "holds no tables NAME.csv and NAME_clean.csv"),
        ({"a.csv": TABLE, "a_clean.csv": "tid,name\n0,1\n"}, "error_detection", "lacks one of the columns"),
        (
            {"a.csv": TABLE, "a_clean.csv": CLEAN + "9,City,x\n"},
            "error_detection",
            "line 7 of .* names row 9, column C",
        ),
        ({"a.csv": TABLE + "one\n", "a_clean.csv": CLEAN}, "error_detection", "a row of 1 values under 2 columns"),
        ({"a.csv": "", "a_clean.csv": CLEAN}, "error_detection", "names row 0, column Name"),
    ],
)
def test_files_that_cannot_be_used_are_answered_by_a_sentence(
    tmp_path: Path,
    files: dict[str, str | bytes],
    task: Literal["entity_matching", "error_detection"],
    sentence: str,
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigurationError, match=sentence) as raised:
        load_task(RecordsConfig(task, str(tmp_path)), 2)
    assert "\n" not in str(raised.value)

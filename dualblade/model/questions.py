"""Records of public data-wrangling benchmarks, read as questions whose answer is one of two words.

Entity matching: a folder with `valid.txt` and `test.txt` as distributed with Ditto (the Magellan benchmark), a pair on
each line: two records `COL name VAL value COL name VAL value ...` and a label, 1 when they are the same thing, all
separated by tabs. Error detection: a folder with two tables as distributed with HoloClean: `NAME.csv`, the records as
they were found, and `NAME_clean.csv` with the columns tid (row of the first table, from 0), attribute and correct_val.
"""

from __future__ import annotations

import csv
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from dualblade.config.run import RecordsConfig
from dualblade.errors import ConfigurationError

_FIELD = re.compile(r"COL (\S+) VAL (.*?)(?=COL \S+ VAL |$)")
_LABELS = {"0": "different", "1": "same"}
_CLEAN_COLUMNS = {"tid", "attribute", "correct_val"}


@dataclass(frozen=True)
class Question:
    """One record or pair of records, as the model reads it, and the right answer."""

    text: str
    answer: str


@dataclass(frozen=True)
class Task:
    """A batch of questions, and solved examples; `noun` stands before each answer."""

    noun: str
    examples: list[Question]
    questions: list[Question]


def load_task(records: RecordsConfig, n_questions: int) -> Task:
    """Choose a batch of questions, if possible half with each answer, and examples from other records.

    Raises:
        ConfigurationError: the files are not there, are of another format, or hold fewer records.
    """
    folder = Path(records.path)
    if records.task == "entity_matching":
        noun, pools = "A and B", [list(_read_pairs(folder / name)) for name in ("valid.txt", "test.txt")]
    else:
        cells = _read_cells(folder)
        noun, pools = "Error", [[cell for tid, cell in cells if tid % 2 == odd] for odd in (0, 1)]
    if len(pools[1]) < n_questions:
        raise ConfigurationError(
            f"workload.records.path={records.path} holds {len(pools[1])} records to ask about and the batch has "
            f"{n_questions}; give a smaller workload.batch_size or more records"
        )
    examples, questions = (_balanced(pool, records.seed) for pool in pools)
    return Task(noun, examples[: records.examples], questions[:n_questions])


def _balanced(pool: list[Question], seed: int) -> list[Question]:
    """Return the pool in random order, with the two answers in turn as long as both are left."""
    groups: dict[str, list[Question]] = {}
    for question in random.Random(seed).sample(pool, len(pool)):
        groups.setdefault(question.answer, []).append(question)
    in_turn = zip_longest(*(groups[answer] for answer in sorted(groups, reverse=True)))
    return [question for question in chain(*in_turn) if question]


def _read_pairs(path: Path) -> Iterator[Question]:
    for number, line in enumerate(_lines(path), 1):
        parts = line.split("\t")
        records = [_record(part) for part in parts[:2]]
        if len(parts) != 3 or parts[2].strip() not in _LABELS or not all(records):
            raise ConfigurationError(
                f"line {number} of {path} is no pair of records; expected two records COL name VAL value ... and a "
                "label 0 or 1, separated by tabs"
            )
        yield Question(f"A: {records[0]}\nB: {records[1]}", _LABELS[parts[2].strip()])


def _record(text: str) -> str:
    """`COL name VAL value ...` as `name: value, ...`; missing values are left out."""
    fields = ((name.replace("_", " "), value.strip()) for name, value in _FIELD.findall(f"{text} "))
    return ", ".join(f"{name}: {value}" for name, value in fields if value)


def _read_cells(folder: Path) -> list[tuple[int, Question]]:
    """Read every cell that is not empty, with its row; the answer is yes where the value is wrong."""
    dirty_path, clean_path = _tables(folder)
    rows = list(_rows(dirty_path))
    cells = []
    for number, clean in enumerate(_rows(clean_path), 2):
        if not clean.keys() >= _CLEAN_COLUMNS:
            raise ConfigurationError(f"{clean_path} lacks one of the columns {', '.join(sorted(_CLEAN_COLUMNS))}")
        tid, attribute = clean["tid"], clean["attribute"]
        if not tid.isdigit() or int(tid) >= len(rows) or attribute not in rows[int(tid)]:
            raise ConfigurationError(
                f"line {number} of {clean_path} names row {tid}, column {attribute}, which {dirty_path.name} does not "
                "have; give the two tables of one data set"
            )
        value = rows[int(tid)][attribute]
        if value.strip():
            cells.append((int(tid), Question(f"{attribute}: {value}", _verdict(value, clean))))
    return cells


def _verdict(value: str, clean: dict[str, str]) -> str:
    return "no" if value == clean["correct_val"] else "yes"


def _tables(folder: Path) -> tuple[Path, Path]:
    for clean in sorted(folder.glob("*_clean.csv")):
        dirty = clean.with_name(clean.name.removesuffix("_clean.csv") + ".csv")
        if dirty.exists():
            return dirty, clean
    raise ConfigurationError(
        f"workload.records.path={folder} holds no tables NAME.csv and NAME_clean.csv; give a folder with "
        "error-detection records in HoloClean's format"
    )


def _rows(path: Path) -> Iterator[dict[str, str]]:
    lines = iter(_lines(path))
    header = next(csv.reader(lines), [])
    for row in csv.reader(lines):
        if len(row) != len(header):
            raise ConfigurationError(f"{path} has a row of {len(row)} values under {len(header)} columns: {row[:3]}")
        yield dict(zip(header, row, strict=True))


def _lines(path: Path) -> Iterable[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigurationError(
            f"workload.records.path: {path} cannot be read: {error.strerror}; README.md says where the public records "
            "are, and records_dir=FOLDER where they lie here"
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not text in UTF-8; give a folder with the records as published") from None

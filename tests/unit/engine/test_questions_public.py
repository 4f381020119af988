"""The public records, where a user has them: read to the last line, and counted by other means."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from dualblade.config.run import RecordsConfig
from dualblade.model.questions import load_task

FOLDER = Path(os.environ.get("DUALBLADE_RECORDS_DIR", "records"))
PAIRS = sorted(path.parent for path in FOLDER.glob("em/*/test.txt"))
TABLES = sorted(path.parent for path in FOLDER.glob("ed/*/*_clean.csv"))

pytestmark = pytest.mark.skipif(
    not PAIRS and not TABLES, reason="no public records in $DUALBLADE_RECORDS_DIR (README.md says where they are)"
)


@pytest.mark.parametrize("folder", PAIRS, ids=lambda folder: folder.name)
def test_all_pairs_are_read_and_labelled(folder: Path) -> None:
    lines = (folder / "test.txt").read_text().splitlines()
    task = load_task(RecordsConfig("entity_matching", str(folder)), len(lines))
    labels = Counter(line.rsplit("\t", 1)[1].strip() for line in lines)
    answers = Counter(question.answer for question in task.questions)
    assert (answers["different"], answers["same"]) == (labels["0"], labels["1"])
    assert not any("COL " in question.text or " VAL " in question.text for question in task.questions)
    words = sum(len(line.split()) for line in lines)
    assert sum(len(question.text.split()) for question in task.questions) > 0.5 * words


@pytest.mark.parametrize("folder", TABLES, ids=lambda folder: folder.name)
def test_all_cells_are_read_and_their_errors_found(folder: Path) -> None:
    (clean_path,) = folder.glob("*_clean.csv")
    dirty = pd.read_csv(clean_path.with_name(clean_path.name.replace("_clean", "")), dtype=str, keep_default_na=False)
    clean = pd.read_csv(clean_path, dtype=str, keep_default_na=False)
    found = pd.Series([dirty.iat[int(row.tid), dirty.columns.get_loc(row.attribute)] for row in clean.itertuples()])
    asked = (clean["tid"].astype(int) % 2 == 1) & (found.str.strip() != "")
    questions = load_task(RecordsConfig("error_detection", str(folder)), int(asked.sum())).questions
    answers = Counter(question.answer for question in questions)
    assert answers["yes"] == int((asked & (found != clean["correct_val"])).sum())
    assert answers["no"] == int((asked & (found == clean["correct_val"])).sum())

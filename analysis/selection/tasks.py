"""The data-wrangling tasks of paper figure 14: their names in print, and which of their runs may be compared."""

from __future__ import annotations

import pandas as pd

from analysis.metrics.paired_change import changes
from analysis.metrics.stats import summarise
from analysis.names import VARIANT, WORKLOAD
from analysis.results.load import optional
from analysis.selection.comparison import MEMORY, Selection, by_variant
from analysis.selection.filters import limited, warm

TASKS = {
    "ed_hospital": "ED Hospital",
    "di_restaurant": "DI Restaurant",
    "di_buy": "DI Buy",
    "em_itunes_amazon": "EM iTunes-Amazon",
    "em_beer": "EM Beer",
    "em_fodors_zagats": "EM Fodors-Zagats",
    "em_walmart_amazon": "EM Walmart-Amazon",
    "em_amazon_google": "EM Amazon-Google",
    "em_dblp_googlescholar": "EM DBLP-Scholar",
    "em_dblp_acm": "EM DBLP-ACM",
}
SAMPLES = {"ed_sample": "ED sample", "em_sample": "EM sample"}
OWN_RECORDS = "conf/workload/records/"  # those that are tracked here
# Settings that differ from task to task, and therefore within a figure.
OF_A_TASK = ("config.workload.", "config.decode_iterations", "decode_iterations")
OVER_TASKS = by_variant(WORKLOAD, free=OF_A_TASK)
OVER_TASKS_AND_LIMITS = by_variant(WORKLOAD, free=(*OF_A_TASK, MEMORY))


def replayed(runs: pd.DataFrame) -> Selection:
    """Replays of the tasks under one limit, with equal settings: those with most tasks."""
    runs = limited(runs)
    return _with_missing(OVER_TASKS.select(runs[runs[WORKLOAD].isin(TASKS)]))


def answered(runs: pd.DataFrame) -> Selection:
    """Runs of a model that answered questions about records, with equal settings: each task has a limit of its own."""
    runs = warm(limited(runs))
    return _with_missing(OVER_TASKS_AND_LIMITS.select(runs[optional(runs, "result.tokens.answers.of").notna()]))


def title(task: str) -> str:
    """A task's name in print."""
    return (TASKS | SAMPLES).get(task.removeprefix("records_"), task)


def made_up(runs: pd.DataFrame) -> pd.Series:
    """Whether a run asked about the made-up records that are tracked here. Source: `workload.records.path`."""
    return optional(runs, "config.workload.records.path").astype(str).str.contains(OWN_RECORDS, regex=False)


def relative(runs: pd.DataFrame, variant: str, metric: str) -> pd.DataFrame:
    """Ratio of a variant to the Baseline in the same repetition: columns `WORKLOAD`, median, low, high, runs."""
    pairs = changes(runs, VARIANT, variant, "baseline", metric, [WORKLOAD])
    return summarise(pairs.assign(ratio=pairs["change"] + 1), [WORKLOAD], "ratio")


def by_size(runs: pd.DataFrame) -> list[str]:
    """The tasks present, the one with the least KV first."""
    return list(runs.groupby(WORKLOAD)["working_set_gb"].median().sort_values().index)


def _with_missing(selection: Selection) -> Selection:
    """Add a sentence for each variant that lacks tasks which other variants have."""
    runs = selection.runs
    have = runs.groupby(VARIANT)[WORKLOAD].agg(set)
    lacking = have.map(lambda tasks: sorted(set(runs[WORKLOAD]) - tasks))
    missing = (f"{variant} has no run of {', '.join(tasks)}" for variant, tasks in lacking.items() if tasks)
    return selection._replace(missing=tuple(missing))

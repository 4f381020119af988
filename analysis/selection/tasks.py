"""The data-wrangling tasks of paper figure 14: their names in print, and the runs of them that may be compared."""

from __future__ import annotations

import pandas as pd

from analysis.metrics.paired_change import changes
from analysis.metrics.stats import summarise
from analysis.names import VARIANT, WORKLOAD
from analysis.results.load import optional
from analysis.selection.comparable import Selection, largest, limited, setup_columns, variant_columns, warm

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
# What makes one task another, and therefore differs within a figure.
OF_A_TASK = ("config.workload.", "config.decode_iterations", "decode_iterations")
AXES = (VARIANT, WORKLOAD)


def replayed(runs: pd.DataFrame) -> Selection:
    """Replays of the tasks under one limit, in the setup with most of them, with one setting of each variant."""
    runs = limited(runs)
    runs = runs[runs[WORKLOAD].isin(TASKS)]
    if runs.empty:
        return Selection(runs)
    return one_setting_each(largest(runs, [*_setup(runs), "memory_gb"], AXES))


def answered(runs: pd.DataFrame) -> Selection:
    """Runs of a model that answered questions about records, in the setup with most of them, each task at its limit."""
    runs = warm(limited(runs))
    runs = runs[optional(runs, "result.tokens.answers.of").notna()]
    if runs.empty:
        return Selection(runs)
    return one_setting_each(largest(runs, _setup(runs), AXES))


def title(task: str) -> str:
    """A task's name in print."""
    return (TASKS | SAMPLES).get(task.removeprefix("records_"), task)


def made_up(runs: pd.DataFrame) -> pd.Series:
    """Whether a run asked about the made-up records that are tracked here. Source: `workload.records.path`."""
    return optional(runs, "config.workload.records.path").astype(str).str.contains(OWN_RECORDS, regex=False)


def _setup(runs: pd.DataFrame) -> list[str]:
    return [column for column in setup_columns(runs) if not column.startswith(OF_A_TASK)]


def one_setting_each(chosen: Selection) -> Selection:
    """Of each variant the setting with most tasks; what is missing is said."""
    groups = [largest(group, variant_columns(group), AXES) for _, group in chosen.runs.groupby(VARIANT)]
    runs = pd.concat([group.runs for group in groups])
    left_out = chosen.left_out + tuple(text for group in groups for text in group.left_out)
    return Selection(runs, left_out, tuple(_missing(runs)))


def relative(runs: pd.DataFrame, variant: str, metric: str) -> pd.DataFrame:
    """A variant over the Baseline at the same repetition, by task: columns `WORKLOAD`, median, low, high, runs."""
    pairs = changes(runs, VARIANT, variant, "baseline", metric, [WORKLOAD])
    return summarise(pairs.assign(ratio=pairs["change"] + 1), [WORKLOAD], "ratio")


def by_size(runs: pd.DataFrame) -> list[str]:
    """The tasks present, the one with the least KV first."""
    return list(runs.groupby(WORKLOAD)["working_set_gb"].median().sort_values().index)


def _missing(runs: pd.DataFrame) -> list[str]:
    have = runs.groupby(VARIANT)[WORKLOAD].agg(set)
    lacking = have.map(lambda tasks: sorted(set(runs[WORKLOAD]) - tasks))
    return [f"{variant} has no run of {', '.join(tasks)}" for variant, tasks in lacking.items() if tasks]

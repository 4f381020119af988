"""The page: what the template shows, gathered in one place."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from analysis import default_sweep
from analysis.claims.verdict import Judgement, Verdict
from analysis.command_line import UnexpectedErrors
from analysis.report import tables
from analysis.report.gallery import exhibits
from analysis.selection.setups import Evidence

TEMPLATES = Path(__file__).parent
LOOKS = {
    Verdict.REPRODUCED: ("reproduced", "✓"),
    Verdict.DIRECTION: ("direction", "◐"),
    Verdict.CONTRADICTED: ("contradicted", "✕"),
    Verdict.NOT_TESTABLE: ("untestable", "\N{EN DASH}"),
}


def render(judgements: Sequence[Judgement], evidence: Evidence, out_dir: Path, errors: UnexpectedErrors) -> str:
    """The whole page as HTML without a single reference to anything outside it but the runs' folders."""
    shown = exhibits(evidence.results, judgements, evidence.results_dir, errors)
    used = {run for judgement in judgements for finding in judgement.findings for run in finding.runs}
    used |= {run for exhibit in shown for run in exhibit.runs}
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["anchor"] = tables.anchor
    environment.globals["interval"] = interval_text
    return environment.get_template("page.html").render(
        made_at=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        judgements=judgements,
        verdicts=list(Verdict),
        looks=LOOKS,
        counts=Counter(judgement.verdict for judgement in judgements),
        exhibits=sorted(shown, key=lambda exhibit: not exhibit.image),
        drawn={exhibit.name for exhibit in shown},
        medians=[(setup, tables.medians(setup)) for setup in evidence.setups],
        machines=[tables.machine(setup) for setup in evidence.setups],
        run_head=tables.RUN_HEAD,
        runs=tables.run_list(evidence, used, out_dir),
        n_loaded=len(evidence.results.runs) + len(evidence.results.io),
        skipped=evidence.results.skipped,
        results_dir=evidence.results_dir.name,
        measure=lambda experiment: default_sweep.command(experiment, evidence.results_dir),
    )


def interval_text(interval: tuple[float, float] | None, unit: str) -> str:
    """Return an interval as text, `-60 to -52 %`, or an empty text."""
    if interval is None:
        return ""
    return f"{interval[0]:.3g} to {interval[1]:.3g} {unit}"

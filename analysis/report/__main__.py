"""Judge the paper's claims from the results and write report/index.html and report/claims.json."""

from __future__ import annotations

import sys
from pathlib import Path

from analysis import default_sweep
from analysis.claims.judges import JUDGES
from analysis.claims.verdict import Judgement, Verdict, judge, read_claims, to_json
from analysis.command_line import (
    EXPECTED_ERRORS,
    UnexpectedErrors,
    check_folder,
    message,
    parse_folders,
    print_some,
)
from analysis.report.page import render
from analysis.results.load import find_runs
from analysis.selection import setups
from dualblade.linux.files import write_text

PAGE, CLAIMS_JSON = "index.html", "claims.json"


def main(arguments: list[str] | None = None) -> int:
    """Measure if there is nothing at all, then judge and write."""
    options = parse_folders("analysis.report", __doc__, "report", "the report", arguments)
    try:
        check_folder(options.results)
        if not find_runs(options.results):
            default_sweep.measure(options.results)
        errors = UnexpectedErrors()
        judgements = write(options.results, options.out, errors)
    except EXPECTED_ERRORS as error:
        print(message(error), file=sys.stderr)
        return 1
    print(summary(judgements, options.out))
    print_some(errors.sentences())
    return int(bool(errors.by_name))


def write(results_dir: Path, out_dir: Path, errors: UnexpectedErrors) -> list[Judgement]:
    """Write both files, each complete or not at all; figures with a bug are left out."""
    gathered = setups.gather(results_dir)
    print_some(gathered.results.skipped)
    judgements = [
        judge(claim, JUDGES, gathered.setups, default_sweep.command(claim.experiment or "all", results_dir))
        for claim in read_claims()
    ]
    out_dir.mkdir(parents=True, exist_ok=True)
    write_text(to_json(judgements), out_dir / CLAIMS_JSON)
    write_text(render(judgements, gathered, out_dir, errors), out_dir / PAGE)
    return judgements


def summary(judgements: list[Judgement], out_dir: Path) -> str:
    """One line per claim, then how many there are of each verdict and where to read on."""
    lines = [
        f"{judgement.claim.id:<4} {judgement.verdict:<18} {judgement.claim.title}: "
        f"{judgement.finding.text or judgement.finding.reason}"
        for judgement in judgements
    ]
    counts = [f"{sum(judgement.verdict is verdict for judgement in judgements)} {verdict}" for verdict in Verdict]
    return "\n".join([*lines, f"{', '.join(counts)}: {out_dir / PAGE}, {out_dir / CLAIMS_JSON}"])


if __name__ == "__main__":
    sys.exit(main())

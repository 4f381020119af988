"""Claims of the paper and their verdicts: `claims.yaml` states a claim, and one judge decides it.

A claim gets one finding per setup (testbed, SSD and device). The first one that could be judged is its verdict: real
devices come before emulated ones, and findings of different setups are never merged into one number.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Any

import yaml

CLAIMS = Path(__file__).with_name("claims.yaml")
SIGNIFICANT_DIGITS = 4
ONE_REPETITION = "One repetition: direction only."
IDLE_TIME = "an emulated SSD's throttle returns idle time as later bandwidth, so it cannot show the cost of idle time"
NO_VALUE = "the runs there are give no value of its metric"
NO_JUDGE = "this version measures nothing that decides it"

Interval = tuple[float, float]


class Verdict(StrEnum):
    """The verdict that the runs give on a claim."""

    REPRODUCED = "reproduced"
    DIRECTION = "direction only"
    CONTRADICTED = "contradicted"
    NOT_TESTABLE = "not testable here"


def graded(*, reproduced: bool, direction: bool) -> Verdict:
    """Return the verdict of a measured claim: the first whose condition holds."""
    if reproduced:
        return Verdict.REPRODUCED
    return Verdict.DIRECTION if direction else Verdict.CONTRADICTED


class Untestable(Exception):
    """The results cannot decide a claim; the message is the reason, a clause without a full stop."""


@dataclass(frozen=True)
class Published:
    """The paper's statement: in words, and its numbers in `unit`."""

    text: str
    values: tuple[float, ...]
    unit: str


@dataclass(frozen=True)
class Claim:
    """One entry of claims.yaml; its first lines say what each field is."""

    id: str
    title: str
    claim: str
    source: str
    figures: tuple[str, ...]
    experiment: str | None
    published: Published
    metric: str
    judged: str
    thresholds: Mapping[str, float]
    magnitude: bool = False
    idle_time: bool = False
    untestable: str | None = None


@dataclass(frozen=True)
class Finding:
    """One setup's finding: `measured` in the claim's unit, the interval of its median, both in words, and why.

    `runs` are the folders of the runs that decided, below the results folder.
    """

    verdict: Verdict
    measured: float | None = None
    interval: Interval | None = None
    text: str = ""
    runs: tuple[str, ...] = ()
    testbed: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class Judgement:
    """A claim, its verdict, and the finding of every setup, the deciding one first."""

    claim: Claim
    findings: tuple[Finding, ...]

    @property
    def finding(self) -> Finding:
        return self.findings[0]

    @property
    def verdict(self) -> Verdict:
        return self.finding.verdict


Judge = Callable[[Claim, Any], Finding]


def read_claims(path: Path = CLAIMS) -> list[Claim]:
    """Return the claims in the order of the file."""
    entries: Mapping[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [_claim(name, entry) for name, entry in entries.items()]


def judge(claim: Claim, judges: Mapping[str, Judge], setups: Iterable[Any], to_measure: str) -> Judgement:
    """Return one finding per setup, the judged ones first. `to_measure` is the command if there is no run."""
    if claim.id not in judges:
        return Judgement(claim, (Finding(Verdict.NOT_TESTABLE, reason=sentence(claim.untestable or NO_JUDGE)),))
    findings = [_find(claim, judges[claim.id], setup) for setup in setups]
    findings.sort(key=lambda finding: finding.verdict is Verdict.NOT_TESTABLE)
    nothing = Finding(Verdict.NOT_TESTABLE, reason=f"There are no results; measure them with: {to_measure}")
    return Judgement(claim, tuple(findings) or (nothing,))


def _find(claim: Claim, decide: Judge, setup: Any) -> Finding:
    try:
        if claim.idle_time and "emulated" in setup.stated:
            raise Untestable(IDLE_TIME)
        finding = decide(claim, setup)
        if finding.measured is not None and not math.isfinite(finding.measured):
            raise Untestable(NO_VALUE)
    except Untestable as reason:
        return Finding(Verdict.NOT_TESTABLE, testbed=setup.name, reason=sentence(str(reason)))
    return replace(_capped(claim, finding, setup), testbed=setup.name)


def _capped(claim: Claim, finding: Finding, setup: Any) -> Finding:
    """Lower a verdict: emulated or paced runs, or a single repetition, show only a direction."""
    if finding.verdict is not Verdict.REPRODUCED or not (caps := _caps(claim, finding, setup)):
        return finding
    return replace(finding, verdict=Verdict.DIRECTION, reason=" ".join(filter(None, [finding.reason, *caps])))


def _caps(claim: Claim, finding: Finding, setup: Any) -> list[str]:
    """Return the reasons why a finding shows only a direction."""
    stated = f"With {setup.stated}, sizes are those that were stated: direction only."
    capped = {stated: bool(setup.stated) and claim.magnitude, ONE_REPETITION: fewest_repetitions(finding.runs) < 2}
    return [sentence for sentence, applies in capped.items() if applies]


def fewest_repetitions(run_folders: Iterable[str]) -> int:
    """Return the fewest repetitions of any point of these runs (`EXPERIMENT/POINT/rep-N`)."""
    turns = {(PurePath(folder).parent.name, PurePath(folder).name) for folder in run_folders}
    return min(Counter(point for point, _ in turns).values(), default=0)


def to_json(judgements: Iterable[Judgement]) -> str:
    """report/claims.json: one object per claim, its verdict's finding flat, the other setups' under `setups`."""
    return json.dumps({judgement.claim.id: _entry(judgement) for judgement in judgements}, indent=1) + "\n"


def _entry(judgement: Judgement) -> dict[str, Any]:
    claim = judgement.claim
    return {
        "title": claim.title,
        **_described(judgement.finding),
        "published": claim.published.text,
        "published_values": list(claim.published.values),
        "unit": claim.published.unit,
        "metric": claim.metric,
        "judged": claim.judged,
        "setups": [_described(finding) for finding in judgement.findings],
    }


def _described(finding: Finding) -> dict[str, Any]:
    return {
        "verdict": finding.verdict.value,
        "measured": rounded(finding.measured),
        "measured_text": finding.text,
        "interval": None if finding.interval is None else [rounded(end) for end in finding.interval],
        "runs": len(finding.runs),
        "run_folders": list(finding.runs),
        "testbed": finding.testbed,
        "reason": finding.reason,
    }


def rounded(value: float | None) -> float | None:
    """Round to four digits, the precision of the measurements; a number that is not finite becomes null, for JSON."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def sentence(clause: str) -> str:
    """Return the text with a capital and a full stop."""
    clause = " ".join(clause.split())
    return clause[:1].upper() + clause[1:] + ("" if clause.endswith(".") or ": python" in clause else ".")


def _claim(name: str, entry: dict[str, Any]) -> Claim:
    published = entry["published"]
    thresholds = entry["thresholds"]
    return Claim(
        **entry
        | {
            "id": name,
            "figures": tuple(entry["figures"]),
            "published": Published(published["text"], tuple(published["values"]), published["unit"]),
            "metric": entry["metric"].format(**thresholds),
            "judged": entry["judged"].format(**thresholds),
        }
    )

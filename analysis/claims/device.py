"""Claims on what reaches the device, from traced runs at a tight limit: C3, C11, C12, C13, C14, C15, C16."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pandas as pd

from analysis.claims.verdict import Claim, Finding, Untestable, graded
from analysis.claims.wording import basis, in_percent, names, percent, share
from analysis.metrics.device_metrics import by_depth, metrics_of
from analysis.metrics.paired_change import changes
from analysis.metrics.stats import interval
from analysis.names import REPETITION, VARIANT
from analysis.results.device_io import has_device_io, load_device_io
from analysis.results.documents import ResultsError
from analysis.selection.comparison import OVER_LIMITS
from analysis.selection.filters import UNTRACED, trace_name, warm
from analysis.selection.setups import Setup
from analysis.selection.traced import LAYERS

BASELINE, OWN = "baseline", "dual_blade"
MIN_COMMANDS = 20  # in a depth bin, for its percentiles to mean anything


def throughput(claim: Claim, setup: Setup) -> Finding:
    """C3: GB/s of the device while it served a request kind, DUAL-BLADE over Baseline."""
    runs = traced(claim, setup, (BASELINE, OWN), "decode_read", "prefill_write")
    read, write = (1 + _change(runs, f"gb_per_s.{name}") for name in ("decode_read", "prefill_write"))
    verdict = graded(
        reproduced=read.median() >= claim.thresholds["decode_read"]
        and write.median() >= claim.thresholds["prefill_write"],
        direction=read.median() > claim.thresholds["any"],
    )
    text = f"decode read {read.median():.2f}x, prefill write {percent(write.median() - 1)}{_at(runs)}"
    return Finding(verdict, read.median(), interval(read), text, names(runs), reason=basis(runs))


def baseline_busy(claim: Claim, setup: Setup) -> Finding:
    """C11: the Baseline's busy rates against the paper's."""
    runs = traced(claim, setup, [BASELINE])
    rates = {kind: runs[f"busy_rate.{kind}"] for kind in ("decode_write", "prefill_write", "decode_read")}
    write, read = rates["prefill_write"].median(), rates["decode_read"].median()
    _, paper_write, paper_read = claim.published.values
    near = max(abs(100 * write - paper_write), abs(100 * read - paper_read)) <= claim.thresholds["points"]
    idle = max(write, read) < claim.thresholds["idle_pct"] / 100
    verdict = graded(reproduced=near, direction=idle)
    text = ", ".join(f"{kind.replace('_', ' ')} {share(rate.median())}" for kind, rate in rates.items()) + _at(runs)
    ends = in_percent(interval(rates["decode_read"]))
    return Finding(verdict, 100 * read, ends, text, names(runs), reason=basis(runs))


def small_writes(claim: Claim, setup: Setup) -> Finding:
    """C12: mean time of the requests that write a decoded token's rows."""
    runs = traced(claim, setup, (BASELINE, OWN))
    metric = "request_ms.decode_write.mean"
    change = _change(runs, metric)
    lower_pct = -100 * change.median()
    verdict = graded(
        reproduced=lower_pct >= claim.thresholds["lower_pct"], direction=lower_pct >= claim.thresholds["some_pct"]
    )
    means_ms = runs.groupby(VARIANT)[metric].median()
    text = f"{percent(change.median())}: {means_ms[BASELINE]:.2f} to {means_ms[OWN]:.2f} ms{_at(runs)}"
    return Finding(verdict, 100 * change.median(), in_percent(interval(change)), text, names(runs), reason=basis(runs))


def request_latency(claim: Claim, setup: Setup) -> Finding:
    """C13: mean and p99 of request times, and the busy rate meanwhile, for decode reads and prefill writes."""
    runs = traced(claim, setup, (BASELINE, OWN))
    mean, tail, busy = (
        {kind: _change(runs, metric.format(kind)) for kind in ("decode_read", "prefill_write")}
        for metric in ("request_ms.{}.mean", "request_ms.{}.p99", "busy_rate.{}")
    )
    better = {kind: mean[kind].median() < 0 and tail[kind].median() < 0 and busy[kind].median() > 0 for kind in mean}
    verdict = graded(reproduced=all(better.values()), direction=better["decode_read"])
    text = "; ".join(
        f"{kind.replace('_', ' ')}: mean {percent(mean[kind].median())}, p99 {percent(tail[kind].median())}, busy rate "
        f"{percent(busy[kind].median())}"
        for kind in mean
    )
    change = mean["decode_read"]
    return Finding(verdict, 100 * change.median(), in_percent(interval(change)), text, names(runs), reason=basis(runs))


def lba_pattern(claim: Claim, setup: Setup) -> Finding:
    """C14: share of commands that follow the one before, within each hardware queue, of reads and of writes."""
    runs = traced(claim, setup, (BASELINE, OWN), "decode_read", "prefill_write")
    kb = runs.groupby(VARIANT)["kb_per_run_queue.decode_read"].median()
    reads, writes = (_in_order(runs, kind) for kind in ("decode_read", "prefill_write"))
    more = 100 * (reads[OWN] - reads[BASELINE])
    least, most = claim.thresholds["ordered_pct"] / 100, claim.thresholds["interleaved_pct"] / 100
    ordered = min(reads[OWN].median(), writes[OWN].median()) >= least
    verdict = graded(
        reproduced=ordered and reads[BASELINE].median() <= most, direction=more.median() >= claim.thresholds["points"]
    )
    text = (
        f"decode reads {share(reads[BASELINE].median())} to {share(reads[OWN].median())} in order, "
        f"{kb[BASELINE]:,.0f} to {kb[OWN]:,.0f} KB per run; prefill writes {share(writes[BASELINE].median())} to "
        f"{share(writes[OWN].median())}{_at(runs)}"
    )
    return Finding(verdict, more.median(), interval(more), text, names(runs), reason=basis(runs))


def submission_queues(claim: Claim, setup: Setup) -> Finding:
    """C15: queues that the Baseline's reads spread over, against its writes."""
    runs = traced(claim, setup, [BASELINE], "decode_read", "prefill_write")
    reads, writes = (runs[f"queues.{kind}"] for kind in ("decode_read", "prefill_write"))
    if max(reads.max(), writes.max()) < 1.01:
        raise Untestable("all commands went through one queue: the device has no other, or the trace does not tell")
    wider = reads / writes
    verdict = graded(reproduced=wider.median() >= claim.thresholds["wider"], direction=wider.median() > 1)
    difference = reads - writes
    text = f"reads over {reads.median():.1f} queues, writes over {writes.median():.1f}"
    return Finding(verdict, difference.median(), interval(difference), text, names(runs), reason=basis(runs))


def time_by_depth(claim: Claim, setup: Setup) -> Finding:
    """C16: median and p5 to p95 of the time per KB in every depth bin that both variants have."""
    runs = traced(claim, setup, (BASELINE, OWN))
    bins = pd.concat([_bins(runs, op) for op in ("read", "write")])
    if bins.empty:
        raise Untestable(f"it takes a depth bin with {MIN_COMMANDS} commands of both variants")
    lower, both = bins["lower"].mean(), (bins["lower"] & bins["narrower"]).mean()
    most = claim.thresholds["most_pct"] / 100
    verdict = graded(reproduced=both > most, direction=lower > most)
    won = f"lower in {bins['lower'].sum()}, lower and narrower in {round(both * len(bins))}"
    text = f"{won} of {len(bins)} bins{_at(runs)}"
    return Finding(verdict, 100 * both, None, text, names(runs), reason=basis(runs))


def traced(claim: Claim, setup: Setup, variants: Collection[str], *kinds: str) -> pd.DataFrame:
    """Runs of all `variants` with a whole trace that has commands of all request `kinds`, a column per device metric.

    They are at the claim's limit, where it has one, else at the lowest that the variants share.

    Raises:
        Untestable: there are none; the reason says what is missing.
    """
    limit_gb = claim.thresholds.get("limit_gb")
    usable = ~trace_name(setup.runs).isin((UNTRACED, LAYERS)) & setup.runs["folder"].map(has_device_io).astype(bool)
    runs = setup.runs[usable & setup.runs[VARIANT].isin(variants) & setup.runs["memory_gb"].notna()]
    runs = runs if limit_gb is None else runs[runs["memory_gb"] == limit_gb]
    runs, broken = _with_metrics(OVER_LIMITS.select(warm(runs)).runs, kinds)
    limits = runs.groupby("memory_gb")[VARIANT].nunique()
    shared = limits.index[limits == len(variants)]
    if not len(shared):
        where = "the same memory limit" if limit_gb is None else f"{limit_gb:g} GB"
        raise Untestable(broken or f"it takes traced runs of {' and '.join(variants)} at {where}")
    return runs[runs["memory_gb"] == shared.min()]


def _with_metrics(runs: pd.DataFrame, kinds: Collection[str]) -> tuple[pd.DataFrame, str]:
    """The runs whose trace can be used, with its metrics; and why another one cannot."""
    records, broken = {}, ""
    for name, folder in runs["folder"].items():
        try:
            records[name] = _metrics(folder, kinds)
        except ResultsError as error:
            broken = str(error)
    frame = pd.DataFrame.from_dict(records, orient="index")
    return runs.loc[list(records)].join(frame), broken


def _metrics(folder: Path, kinds: Collection[str]) -> Mapping[str, float]:
    """Metrics of a trace.

    Raises:
        ResultsError: it cannot be used, or no command of one of `kinds` was seen, or known as one.
    """
    metrics = metrics_of(folder)
    for kind in kinds:
        if not metrics[f"commands.{kind}"]:
            raise ResultsError(f"the trace in {folder} has no command that belongs to a {kind.replace('_', ' ')}")
    return metrics


def _change(runs: pd.DataFrame, metric: str) -> pd.Series:
    """DUAL-BLADE against Baseline, one value per repetition.

    Raises:
        Untestable: one of them has no such commands.
    """
    change = changes(runs, VARIANT, OWN, BASELINE, metric, ["memory_gb"])["change"]
    if change.empty:
        raise Untestable(f"no repetition has {metric.split('.')[1].replace('_', ' ')}s at the device in both variants")
    return change


def _in_order(runs: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Share of a kind's commands in order, one row per repetition that both variants have, a column for each.

    Raises:
        Untestable: there is none.
    """
    shares = runs.groupby([REPETITION, VARIANT])[f"in_order.{kind}"].median().unstack().dropna()
    if shares.empty:
        raise Untestable(f"no repetition has {kind.replace('_', ' ')}s of several commands in both variants")
    return shares


def _bins(runs: pd.DataFrame, op: str) -> pd.DataFrame:
    """Depth bins with enough commands of both variants: columns lower, narrower."""
    tables = {}
    for variant in (BASELINE, OWN):
        folders = runs[runs[VARIANT] == variant]["folder"]
        commands = pd.concat([load_device_io(folder).commands for folder in folders])
        table = by_depth(commands[commands["op"] == op]).set_index("depth")
        tables[variant] = table[table["commands"] >= MIN_COMMANDS]
    theirs, own = (tables[name].loc[tables[BASELINE].index.intersection(tables[OWN].index)] for name in (BASELINE, OWN))
    return pd.DataFrame(
        {
            "lower": own["median"] < theirs["median"],
            "narrower": own["p95"] - own["p5"] < theirs["p95"] - theirs["p5"],
        }
    )


def _at(runs: pd.DataFrame) -> str:
    return f" at {runs['memory_gb'].iloc[0]:g} GB"

"""The figures as the page carries them: drawn from the results, as images in the page itself."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from analysis import default_sweep
from analysis.claims.verdict import Judgement
from analysis.command_line import UnexpectedErrors
from analysis.drawing import style
from analysis.figures.registry import FIGURES
from analysis.figures.spec import FigureSpec
from analysis.report.tables import Table, from_frame
from analysis.results.load import Results
from dualblade.errors import DualBladeError

CSS_PX_PER_IN = 150


@dataclass(frozen=True)
class Exhibit:
    """One figure with what belongs to it.

    `image` is a data URI; empty where there is nothing to draw, or where it failed for the reason that `fault` gives.
    """

    name: str
    title: str
    subject: str
    command: str
    claims: tuple[Judgement, ...]
    fault: str = ""
    image: str = ""
    width_px: int = 0
    caption: str = ""
    table: Table | None = None
    runs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def exhibits(
    results: Results, judgements: Iterable[Judgement], results_dir: Path, errors: UnexpectedErrors
) -> list[Exhibit]:
    """All figures in the paper's order, those without data as the command that would measure them."""
    judgements = list(judgements)
    return [_exhibit(_empty(name, judgements, results_dir), results, errors) for name in FIGURES]


def _empty(name: str, judgements: list[Judgement], results_dir: Path) -> Exhibit:
    return Exhibit(
        name=name,
        title=name.replace("e2e", "end-to-end").replace("_", " ").capitalize(),
        subject=_subject(FIGURES[name].title),
        command=default_sweep.command(name, results_dir),
        claims=tuple(judgement for judgement in judgements if name in judgement.claim.figures),
    )


def _exhibit(empty: Exhibit, results: Results, errors: UnexpectedErrors) -> Exhibit:
    try:
        with errors.catch(empty.name):
            return _drawn(empty, FIGURES[empty.name], results)
    except DualBladeError as error:
        return replace(empty, fault=str(error))
    return replace(empty, fault=f"Not drawn because of a bug: {errors.by_name[empty.name]}")


def _drawn(empty: Exhibit, spec: FigureSpec, results: Results) -> Exhibit:
    selection = spec.select(results)
    if selection.runs.empty:
        return empty
    with mpl.rc_context(style.RC):
        figure = spec.draw(selection.runs)
        return replace(
            empty,
            image=_data_uri(figure),
            width_px=round(figure.get_size_inches()[0] * CSS_PX_PER_IN),
            caption=spec.caption(selection.runs),
            table=from_frame(spec.table(selection.runs)) if spec.table else None,
            runs=tuple(str(run) for run in selection.runs.index),
            notes=(*selection.left_out, *selection.missing),
        )


def _subject(title: str) -> str:
    """Return the first paragraph of the title."""
    return " ".join(title.split("\n\n")[0].split())


def _data_uri(figure: Figure) -> str:
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=style.PNG_DPI)
    return "data:image/png;base64," + base64.b64encode(image.getvalue()).decode()

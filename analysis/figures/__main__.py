"""Draw every figure whose data exist; without any results, measure the embedded default sweep first."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl

from analysis import default_sweep
from analysis.command_line import (
    EXPECTED_ERRORS,
    UnexpectedErrors,
    check_folder,
    message,
    parse_folders,
    print_some,
)
from analysis.drawing import layout, style
from analysis.figures.registry import FIGURES
from analysis.metrics import run_metrics
from analysis.results.load import Results, load
from analysis.selection.comparison import Selection
from dualblade.errors import DualBladeError

NAME_CHARS = 20


def main(arguments: list[str] | None = None) -> int:
    """Measure if there is nothing to draw, then draw."""
    options = parse_folders("analysis.figures", __doc__, "figures", "figures", arguments)
    try:
        check_folder(options.results)
        errors = UnexpectedErrors()
        results, selections = select(options.results, errors)
        if not errors.by_name and all(selection.runs.empty for selection in selections.values()):
            default_sweep.measure(options.results)
            results, selections = select(options.results, errors)
        print_some(results.skipped)
        return draw_all(selections, options.results, options.out, errors)
    except EXPECTED_ERRORS as error:
        print(message(error), file=sys.stderr)
        return 1


def select(results_dir: Path, errors: UnexpectedErrors) -> tuple[Results, dict[str, Selection]]:
    """Load the results, and select the runs of each figure."""
    results, selections = run_metrics.with_metrics(load(results_dir)), {}
    for name, figure in FIGURES.items():
        with errors.catch(name):
            selections[name] = figure.select(results)
    return results, selections


def draw_all(selections: Mapping[str, Selection], results_dir: Path, out_dir: Path, errors: UnexpectedErrors) -> int:
    """Draw the figures with data, and name the commands that measure the others; status 1 without data, or on a bug."""
    for name, selection in selections.items():
        if selection.runs.empty:
            print(f"{name:<{NAME_CHARS}} no results; measure them with: {default_sweep.command(name, results_dir)}")
            continue
        try:
            with errors.catch(name):
                draw(name, selection, out_dir)
        except DualBladeError as error:
            print(f"{name:<{NAME_CHARS}} not drawn: {error}")
    print_some(errors.sentences())
    return int(bool(errors.by_name) or all(selection.runs.empty for selection in selections.values()))


def draw(name: str, selection: Selection, out_dir: Path) -> None:
    """Draw one figure and print one line about it, then what it does not show."""
    figure, runs = FIGURES[name], selection.runs
    out_dir.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(style.RC):
        files = layout.save(figure.draw(runs), out_dir / name, figure.caption(runs))
    if figure.table:
        files.append(layout.save_table(figure.table(runs), out_dir / name))
    print(f"{name:<{NAME_CHARS}} {len(runs):>4} runs  {', '.join(str(path) for path in files)}")
    print_some(f"not in {name}: {text}" for text in selection.left_out)
    print_some(f"incomplete {name}: {text}" for text in selection.missing)


if __name__ == "__main__":
    sys.exit(main())

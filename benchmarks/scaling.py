"""How cost grows with columns, rows and pages: curves as JSON and SVG in ``results``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import data, harness
from benchmarks.files import CACHE, edition, made
from benchmarks.formats import FEATHER, FERMION, LANCE, ORC, PARQUET_ZSTD, VORTEX, Fermion, Format
from benchmarks.machine import description, today
from benchmarks.question import Action, Case, NotOffered, Question, Size

COLUMNS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
PAGE_ROWS = (100_000, 10_000, 1_000, 100)
WIDE_ROWS = 100
PAGED_ROWS = 1_000_000
POINTS_TINY = 2
SLOW_COLUMNS = 3_000  # above, Vortex, Lance and ORC take minutes to write


@dataclass(frozen=True)
class Curve:
    """One plot.

    Attributes
    ----------
    name
        Of its files.
    title, axis
        Of the plot and its horizontal axis.
    points
        Case name to its place on the axis.
    """

    name: str
    title: str
    axis: str
    points: dict[str, int]


def columns_case(columns: int, index: int) -> Case:
    """Open a file of so many columns and read ten."""

    def prepare(library: Format, size: Size) -> Action:
        if columns > SLOW_COLUMNS and library.name in {VORTEX.name, LANCE.name, ORC.name}:
            raise NotOffered(f"takes minutes to write {columns:,} columns")
        name = f"wide-{columns}x{WIDE_ROWS}"
        path = library.stored(name, size, lambda: data.wide(columns, WIDE_ROWS))
        names = data.some_names(columns)
        return lambda: library.read(path, names)

    return Case(prepare, calls=5, sizes=sizes(index))


def rows_case(rows: int, index: int) -> Case:
    """Read all of a narrow file of so many rows."""

    def prepare(library: Format, size: Size) -> Action:
        path = library.stored(f"narrow-{rows}", size, lambda: data.batches(rows // 10))
        return lambda: library.read(path)

    return Case(prepare, sizes=sizes(index))


def pages_case(page_rows: int, index: int) -> Case:
    """One row by its id, in a million rows cut into pages of so many."""

    def prepare(library: Format, size: Size) -> Action:
        if not isinstance(library, Fermion):
            raise NotOffered("its pages are not asked about")
        import fermion

        def write(path: Path) -> None:
            table = data.batches(PAGED_ROWS // 10)
            fermion.write_table(table, path, page_rows_max=page_rows, durable=False)

        label = f"fermion-{edition('fermion')}.fmn"
        path = str(made(CACHE / size / f"pages-of-{page_rows}", label, write))
        wanted = fermion.col("id") == PAGED_ROWS // 2
        return lambda: library_read(path, wanted)

    return Case(prepare, calls=5, sizes=sizes(index))


def library_read(path: str, wanted: Any) -> Any:
    """One row, with the file opened anew."""
    import fermion

    return fermion.read_table(path, filter=wanted)


def sizes(index: int) -> tuple[Size, ...]:
    """The first points are also for trying it out."""
    return ("full", "quick", "tiny") if index < POINTS_TINY else ("full",)


def label(count: int, what: str) -> str:
    """A case's name."""
    return f"{count:,} {what}"


CURVES = (
    Curve(
        "scaling_columns",
        "Open a file and read 10 columns (100 rows)",
        "columns",
        {label(n, "columns"): n for n in COLUMNS},
    ),
    Curve(
        "scaling_rows",
        "Read all of a file (int64, int64, double, string)",
        "rows",
        {label(n, "rows"): n for n in ROWS},
    ),
    Curve(
        "scaling_pages",
        "Find one row of a million by its id",
        "pages a column",
        {label(n, "rows a page"): PAGED_ROWS // n for n in PAGE_ROWS},
    ),
)

QUESTION = Question(
    module="benchmarks.scaling",
    title="How cost grows: over columns, rows and pages",
    cases={
        **{label(n, "columns"): columns_case(n, i) for i, n in enumerate(COLUMNS)},
        **{label(n, "rows"): rows_case(n, i) for i, n in enumerate(ROWS)},
        **{label(n, "rows a page"): pages_case(n, i) for i, n in enumerate(PAGE_ROWS)},
    },
    libraries=(FERMION, PARQUET_ZSTD, FEATHER, VORTEX, LANCE, ORC),
    rounds={"full": 3},
)


def series(curve: Curve, results: Sequence[harness.Result]) -> dict[str, list[list[float]]]:
    """Points of each library: place on the axis, median seconds."""
    found: dict[str, list[list[float]]] = {}
    for result in results:
        median = result.median("seconds")
        if result.case in curve.points and median is not None:
            found.setdefault(result.measured, []).append([curve.points[result.case], median])
    return {name: sorted(points) for name, points in found.items()}


def plot(curve: Curve, lines: dict[str, list[list[float]]], target: Path) -> None:
    """Draw a curve as SVG; both axes are logarithmic."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "fermion"  # the same figures give the same file
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2))
    for name, points in lines.items():
        own = name == FERMION.name
        places, seconds = zip(*points, strict=True)
        milliseconds = [value * 1e3 for value in seconds]
        width = 2.5 if own else 1.2
        axes.plot(places, milliseconds, marker="o", linewidth=width, label=name)
    axes.set(xscale="log", yscale="log", xlabel=curve.axis, ylabel="milliseconds")
    axes.set_title(curve.title, fontsize=10)
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend(fontsize=8)
    machine = description()
    axes.annotate(
        f"{machine['processor']}, {machine['cores']} cores, {today()}",
        (1.0, -0.17),
        xycoords="axes fraction",
        ha="right",
        fontsize=7,
    )
    figure.savefig(target, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Measure, then write a JSON and an SVG file for each curve."""
    options = harness.arguments(QUESTION.title)
    if options.prepare:
        harness.main(QUESTION)
        return
    cases = options.cases.split(";") if options.cases else None
    only = options.only.split(",") if options.only else None
    folder = harness.results_folder(options)
    results = harness.run(
        QUESTION, options.size, only=only, cases=cases, rounds=options.rounds, folder=folder
    )
    if folder is None:
        return
    for curve in CURVES:
        lines = series(curve, results)
        content = {
            "title": curve.title,
            "axis": curve.axis,
            "date": today(),
            "machine": description(),
            "seconds": lines,
        }
        (folder / f"{curve.name}.json").write_text(json.dumps(content, indent=1) + "\n")
        plot(curve, lines, folder / f"{curve.name}.svg")


if __name__ == "__main__":
    main()

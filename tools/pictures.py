"""Takes the pictures of web pages in docs/images: ``python -m tools.pictures [FOLDER]``.

They show real data, the first names of examples/data: a file with a column for each year and sex,
whose rows are names, the most frequent ones first; and a table with a primary key that takes the
names of one year after the other.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

import fermion
from fermion_table import Table
from tools.chromium.browser import Browser

PROJECT = Path(__file__).resolve().parents[1]
NAMES = PROJECT / "examples" / "data" / "babynames"
IMAGES = PROJECT / "docs" / "images"
BYTES_MAX = 150_000
FIX = "fix-spelling"


def names_of(file: Path) -> pa.Table:
    """The names of one year: name, sex, births."""
    return pyarrow.csv.read_csv(
        pa.input_stream(file, compression="gzip"),
        read_options=pyarrow.csv.ReadOptions(column_names=["name", "sex", "births"]),
    )


def wide_file(path: str) -> None:
    """Write names as rows, years and sexes as columns."""
    years = {int(file.name[3:7]): names_of(file) for file in sorted(NAMES.glob("yob*.txt.gz"))}
    everyone = pa.concat_tables(years.values()).group_by("name").aggregate([("births", "sum")])
    everyone = everyone.sort_by([("births_sum", "descending"), ("name", "ascending")])
    columns = {"name": everyone["name"], "total": everyone["births_sum"]}
    for sex in ("F", "M"):
        for year, rows in years.items():
            own = rows.filter(pc.equal(rows["sex"], sex))
            place = pc.index_in(everyone["name"], own["name"].combine_chunks())
            columns[f"{sex}_{year}"] = own["births"].combine_chunks().take(place.combine_chunks())
    fermion.write_table(pa.table(columns), path, stripe_rows=8_192)


def keyed_table(path: str) -> Table:
    """Make a table of the births of each name, which takes a year with each commit."""
    schema = pa.schema(
        [
            pa.field("name", pa.string(), nullable=False),
            pa.field("sex", pa.string(), nullable=False),
            pa.field("births", pa.int64()),
        ]
    )
    table = Table.create(
        path,
        schema,
        primary_key=["name", "sex"],
        properties={"bucket": "6", "merge_engine": "deduplicate"},
        durability="fast",
    )
    for file in sorted(NAMES.glob("yob*.txt.gz")):
        year = int(file.name[3:7])
        table.upsert(names_of(file), message=f"names of {year}")
        if year % 9 == 0:
            table.compact(full=year == 1998)
        if year % 10 == 0:
            table.tags.create(f"census-{year}")
        if year == 2003:
            table.branches.create(FIX)
            branch = Table.open(path, branch=FIX, durability="fast")
            branch.upsert(names_of(file).slice(0, 500), message="spelling")
            branch.upsert(names_of(file).slice(500, 900), message="more spelling")
            table.branches.fast_forward(FIX)
    return table


def take(folder: Path) -> list[Path]:
    """Write the pages and take their pictures; their paths."""
    pages = {}
    wide_file("names_by_year.fermion")
    with fermion.open("names_by_year.fermion") as file:
        pages["inspect"] = (file.layout_html(), 810)
    page = keyed_table("baby_names").history_html()
    pages["history"] = (page.replace(f"{os.getcwd()}/", ""), 1_020)
    taken = []
    with Browser() as browser:
        for name, (text, height) in pages.items():
            Path(f"{name}.html").write_text(text, encoding="utf-8")
            page = browser.open(Path(f"{name}.html"), width=1_180, height=height)
            if name == "inspect":
                page.move(480, 480)  # shows what is told of a cell
            taken.append(folder / f"{name}.png")
            page.screenshot(taken[-1])
            errors = page.errors()
            if errors or taken[-1].stat().st_size > BYTES_MAX:
                raise SystemExit(f"{name}: {taken[-1].stat().st_size:,} bytes, errors {errors}")
    return taken


def main() -> int:
    """Take all pictures."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else IMAGES).resolve()
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)  # the pages show paths as they were given
        for path in take(folder):
            print(path, f"{path.stat().st_size:,} bytes")
        os.chdir(PROJECT)
    return 0


if __name__ == "__main__":
    sys.exit(main())

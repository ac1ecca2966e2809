"""Two tables with a primary key: the first names in use, kept current, and the sums of all years.

    python examples/primary_key.py [directory]

applies thirty years of names as changes, deletions among them, and reads single years, single keys
and both sides of a compaction. It checks everything it reads against the raw files, read with
pyarrow alone. Exit status 1 if anything differs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from fermion_table import Table

DATA = Path(__file__).resolve().parent / "data" / "babynames"
YEARS = range(1981, 2011)
KEY = ["sex", "name"]
COLUMNS = {"name": pa.string(), "sex": pa.string(), "births": pa.int64()}
NAMES = pa.schema({"sex": pa.string(), "name": pa.string(), "births": pa.int64()})
TOTALS = pa.schema(
    {
        "sex": pa.string(),
        "name": pa.string(),
        "births": pa.int64(),
        "most": pa.int64(),
        "first_year": pa.int16(),
        "last_year": pa.int16(),
    }
)
FUNCTIONS = {"births": "sum", "most": "max", "first_year": "min", "last_year": "max"}


def read_year(year: int) -> pa.Table:
    """Return the raw rows of one year: sex, name, births."""
    return pa.csv.read_csv(
        DATA / f"yob{year}.txt.gz",
        read_options=pa.csv.ReadOptions(column_names=list(COLUMNS)),
        convert_options=pa.csv.ConvertOptions(column_types=COLUMNS, strings_can_be_null=False),
    ).select(NAMES.names)


def in_order(rows: pa.Table) -> pa.Table:
    """Return rows in the order of their keys: a scan of such a table gives them in any order."""
    return rows.sort_by([(name, "ascending") for name in KEY]).combine_chunks()


def same(found: pa.Table, expected: pa.Table) -> bool:
    """Tell whether two tables have the same rows."""
    expected = expected.select(found.column_names).cast(found.schema)
    return in_order(found).equals(in_order(expected))


def changes(before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows that are new or have another number, and the keys that are gone."""
    joined = after.join(before, KEY, join_type="left outer", right_suffix="_before")
    is_same = pc.fill_null(pc.equal(joined["births"], joined["births_before"]), False)
    changed = joined.filter(pc.invert(is_same)).select(NAMES.names)
    return changed, before.join(after, KEY, join_type="left anti").select(KEY)


def names_in_use(path: Path, years: dict[int, pa.Table]) -> dict[str, bool]:
    """Keep a table at the names of the latest year, one commit a year; return what was checked."""
    table = Table.create(path, NAMES, primary_key=KEY, properties={"bucket": "2"})
    before = NAMES.empty_table()
    for year, after in years.items():
        changed, gone = changes(before, after)
        with table.transaction(message=f"names of {year}") as transaction:
            transaction.upsert(changed)
            transaction.delete_keys(gone)  # blind: nothing is read to delete
        table.tags.create(f"year-{year}")
        before = after
        if year % 7 == 0:
            table.compact()  # merges runs where there are too many of them
    first, middle, last = min(years), 1995, max(years)
    checks = {
        "the latest year": same(table.scan().to_arrow(), years[last]),
        "the first year, by its tag": same(
            table.scan(tag=f"year-{first}").to_arrow(), years[first]
        ),
        "a year between": same(table.scan(tag=f"year-{middle}").to_arrow(), years[middle]),
        "a filter": same(
            table.scan(filter="births >= 10000").to_arrow(),
            years[last].filter(pc.field("births") >= 10000),
        ),
    }
    print(table.scan().explain())

    keys = [("F", "Emma"), ("F", "No such name"), ("M", "Noah")]
    found = table.lookup(keys, columns=["name", "births"])
    print(f"lookup of {keys}: {found.to_pylist()}")
    rows = years[last].filter(pc.is_in(pc.field("name"), pa.array(["Emma", "Noah"])))
    expected = {(row["sex"], row["name"]): row["births"] for row in rows.to_pylist()}
    checks["single keys"] = found.to_pylist() == [
        {"name": name, "births": expected[sex, name]} for sex, name in (keys[0], keys[2])
    ]

    table.compact(full=True)  # now every read is as fast as of an append table
    print(table.scan().explain())
    checks["the latest year, compacted"] = same(table.scan().to_arrow(), years[last])
    checks["what needs no merging"] = same(
        table.scan(mode="read_optimized").to_arrow(), years[last]
    )
    checks["a year before the compaction"] = same(
        table.scan(tag=f"year-{middle}").to_arrow(), years[middle]
    )
    return checks


def sums_of_all_years(path: Path, years: dict[int, pa.Table]) -> dict[str, bool]:
    """Add up all years in a table that aggregates; return what was checked."""
    table = Table.create(
        path,
        TOTALS,
        primary_key=KEY,
        properties={
            "bucket": "2",
            "merge_engine": "aggregation",
            **{f"fields.{column}.aggregate_function": name for column, name in FUNCTIONS.items()},
        },
    )
    for year, rows in years.items():
        table.upsert(with_year(rows, year))
    expected = pa.concat_tables(with_year(rows, year) for year, rows in years.items())
    expected = expected.group_by(KEY).aggregate(list(FUNCTIONS.items()))
    expected = expected.rename_columns(
        {f"{column}_{name}": column for column, name in FUNCTIONS.items()}
    )
    checks = {"sums of all years": same(table.scan().to_arrow(), expected)}
    table.compact(full=True)
    checks["sums, compacted"] = same(table.scan().to_arrow(), expected)
    return checks


def with_year(rows: pa.Table, year: int) -> pa.Table:
    """Return one year's rows as rows of the table of sums."""
    number = pa.array([year] * rows.num_rows, pa.int16())
    columns = {"most": rows["births"], "first_year": number, "last_year": number}
    for name, values in columns.items():
        rows = rows.append_column(name, values)
    return rows


def main() -> int:
    """Make both tables; return the exit status."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fermion-"))
    years = {year: read_year(year) for year in YEARS}
    checks = names_in_use(directory / "names", years) | sums_of_all_years(
        directory / "totals", years
    )
    for what, is_right in checks.items():
        print(f"{'right' if is_right else 'WRONG'}: {what}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

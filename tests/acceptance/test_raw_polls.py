"""A table that was published again every other year, with other columns each time.

The polls behind FiveThirtyEight's pollster ratings, of 2014 to 2020: columns are added, one is
retyped and one goes.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pytest

from fermion_table import Table

YEARS = (2014, 2016, 2018, 2019, 2020)
RETYPED = "samplesize"
NEW = ["poll_id", "question_id", "race_id", "cand1_party", "cand2_party"]


def raw_polls(folder, year: int) -> pa.Table:
    suffix, delimiter = ("tsv", "\t") if year == 2014 else ("csv", ",")
    types = {RETYPED: pa.int32() if year < 2018 else pa.float64()}
    return pyarrow.csv.read_csv(
        folder / str(year) / f"raw-polls.{suffix}",
        read_options=pyarrow.csv.ReadOptions(encoding="latin-1"),
        parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter),
        convert_options=pyarrow.csv.ConvertOptions(column_types=types),
    )


@pytest.fixture(scope="module")
def files(shared_data):
    folder = shared_data / "fivethirtyeight" / "pollster-ratings"
    return {year: raw_polls(folder, year) for year in YEARS}


def test_each_years_snapshot_reads_as_that_years_file(files, table_path):
    """Years replace each other; columns grow from 24 to 29, and every snapshot keeps its own."""
    table = Table.create(table_path, files[2014].schema)
    snapshots = {}
    for year, data in files.items():
        if year == 2018:
            table.alter_column(RETYPED, type=pa.float64())
        if year == 2020:
            table.drop_columns(["pollno"])
        table.delete("TRUE")
        snapshots[year] = table.append(data, schema_mode="merge").id
    assert [len(table.scan(snapshot_id=each).schema) for each in snapshots.values()] == [
        24, 24, 24, 25, 29,
    ]  # fmt: skip
    for year, data in files.items():
        found = table.scan(snapshot_id=snapshots[year]).to_arrow()
        assert found.select(data.column_names).equals(data)
        assert set(found.column_names) == set(data.column_names)
    assert table.verify(data=True).ok


def test_all_years_together_read_as_the_files_under_the_newest_schema(files, table_path):
    """Appended one by one; a year's rows are what its commit added, and lack what came later."""
    table = Table.create(table_path, files[2014].schema)
    for year, data in files.items():
        if year == 2018:
            table.alter_column(RETYPED, type=pa.float64())
        before = table.snapshot.id
        snapshot = table.append(data, schema_mode="merge", message=f"polls of {year}")
        names = data.column_names
        added = table.scan_changes(before, snapshot.id, columns=names).to_arrow()
        assert added.select(names).equals(data)
    assert table.schema.to_arrow().names == [*files[2014].column_names, "pollster_rating_id", *NEW]
    whole = table.scan().to_arrow()
    assert whole.num_rows == sum(map(len, files.values()))
    for name in NEW:
        column = whole.column(name)
        assert column.slice(0, len(whole) - len(files[2020])).null_count == len(whole) - 9559
        assert column.slice(len(whole) - 9559).equals(files[2020].column(name))
    counts = [table.scan(filter=f"race_id IS NULL AND year = {year}").count() for year in YEARS]
    years = whole.filter(pa.compute.field("race_id").is_null()).column("year").to_pylist()
    assert counts == [years.count(year) for year in YEARS]

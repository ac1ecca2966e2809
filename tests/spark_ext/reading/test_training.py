"""Joins at points in time by Spark give the rows that they give in Python."""

from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

import spark_ext
from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.training import FeatureSource
from fermion_table.training import training_frame as in_python

pytestmark = pytest.mark.spark
DAY = datetime(2026, 3, 28)  # a change of clocks follows


def source_of(path, seed, rows=400, names=("user", "item")):
    """Rows of some users and items, each at another moment, some without a key or a time."""
    random = np.random.default_rng(seed)
    moments = random.permutation(rows)
    columns = {
        name: pa.array(random.integers(0, 5, rows), mask=random.random(rows) < 0.05)
        for name in names
    }
    times = [
        None if random.random() < 0.05 else DAY + timedelta(minutes=10 * int(moment))
        for moment in moments
    ]
    values = {f"x{seed}.`y`": random.random(rows), f"number{seed}": pa.array(range(rows))}
    return Table.create(path, {**columns, "at": pa.array(times, pa.timestamp("us")), **values})


def same(spark, labels, sources, **options):
    expected = in_python(labels, sources, **options).to_arrow().sort_by("number0")
    found = spark_ext.training_frame(spark, labels, sources, **options).toArrow().sort_by("number0")
    assert found.column_names == expected.column_names
    assert found.to_pydict() == expected.to_pydict()
    return expected


def test_spark_gives_the_rows_that_python_gives(spark, tmp_path):
    labels, first, second = (source_of(tmp_path / str(seed), seed) for seed in range(3))
    rows = same(
        spark,
        labels,
        [
            FeatureSource(first, ["user"], "at", ["x1*", "number1"], within="3h"),
            FeatureSource(second, ["user", "item"], "at", ["x2*"], within=timedelta.max),
        ],
    )
    assert 0 < rows["number1"].null_count < rows["x2.`y`"].null_count + rows.num_rows


def test_days_and_counters_order_rows_too(spark, tmp_path):
    for times in ([date(2026, 1, day) for day in (1, 5, 9)], [1, 5, 9]):
        path = tmp_path / type(times[0]).__name__
        labels = Table.create(path / "l", {"k": [1] * 3, "t": times, "number0": [0, 1, 2]})
        source = Table.create(path / "s", {"k": [1, 1], "t": times[:2], "x": ["a", "b"]})
        within = timedelta(days=3) if isinstance(times[0], date) else None
        rows = same(spark, labels, [FeatureSource(source, ["k"], "t", within=within)], time="t")
        assert rows["x"].to_pylist()[:2] == ["a", "b"]


def test_what_was_committed_later_is_not_seen(spark, tmp_path):
    labels, source = (source_of(tmp_path / str(seed), seed, rows=40) for seed in range(2))
    known = datetime.fromtimestamp(source.snapshot.time_ms / 1_000).astimezone()
    source.append(source_of(tmp_path / "late", 1, rows=20).to_arrow())
    same(spark, labels, [FeatureSource(source, ["user"], "at", ["x1*"])], as_known_at=known)


def test_errors_are_those_of_python(spark, tmp_path):
    labels, source = (source_of(tmp_path / str(seed), seed, rows=10) for seed in range(2))
    with pytest.raises(InvalidArgumentError, match="another column 'user'"):
        spark_ext.training_frame(spark, labels, [FeatureSource(source, ["item"], "at")])

"""What a commit says is checked on the driver, before anything is made or any task runs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_ext
from fermion.errors import InvalidArgumentError
from fermion_table import Table
from tests.kit.spark.counting import tasks_started

WRONG = {
    "message": {"message": 5},
    "properties": {"properties": {"a": 1}},
    "commit_user": {"commit_user": 7, "commit_identifier": 1},
    "commit_identifier": {"commit_user": "job", "commit_identifier": 1.5},
    "both or neither": {"commit_user": "job"},
}
SCHEMA = pa.schema([("id", pa.int64())])


def refused(spark, call, said: str) -> None:
    def run() -> None:
        with pytest.raises((TypeError, InvalidArgumentError), match=said):
            call()

    assert tasks_started(spark, run) == 0


@pytest.mark.parametrize("said", WRONG)
@pytest.mark.parametrize("function", [spark_ext.append, spark_ext.overwrite])
def test_words_that_no_commit_can_hold_are_refused_before_any_task(
    function, said, spark, tmp_path
) -> None:
    """The table has no file more, and no snapshot more."""
    table = Table.create(tmp_path / "t", SCHEMA)
    before = sorted(tmp_path.rglob("*"))
    refused(spark, lambda: function(spark.range(3), tmp_path / "t", **WRONG[said]), said)
    assert table.refresh().id == 0
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("said", WRONG)
def test_wrong_words_make_no_new_table(said, spark, tmp_path) -> None:
    refused(spark, lambda: spark_ext.write(spark.range(3), tmp_path / "t", **WRONG[said]), said)
    assert list(tmp_path.iterdir()) == []
    if "properties" not in WRONG[said]:
        source = tmp_path / "source.parquet"
        pq.write_table(pa.table({"id": [1]}), source)
        refused(
            spark,
            lambda: spark_ext.from_parquet(spark, source, tmp_path / "t", **WRONG[said]),
            said,
        )
        assert list(tmp_path.iterdir()) == [source]


def test_compaction_refuses_arguments_before_any_task(spark, tmp_path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA)
    for number in range(3):
        table.append({"id": [number]})
    for wrong in (
        {"max_groups_per_commit": "2"},
        {"max_groups_per_commit": True},
        {"progress": 5},
        {"min_input_files": "many"},
    ):
        (name,) = wrong
        refused(spark, lambda w=wrong: spark_ext.compact(spark, tmp_path / "t", **w), name)
    assert table.refresh().id == 3


def test_a_job_that_is_run_again_finds_its_commit_without_a_task(spark, tmp_path) -> None:
    """By the lookup of the table; 5 and "5" are one."""
    table = Table.create(tmp_path / "t", SCHEMA)
    words = {"commit_user": "job", "commit_identifier": 5}
    made = spark_ext.append(spark.range(3), tmp_path / "t", **words)
    assert table.refresh() == made

    def again() -> None:
        words["commit_identifier"] = "5"
        assert spark_ext.append(spark.range(3), tmp_path / "t", **words) == made
        assert spark_ext.overwrite(spark.range(3), tmp_path / "t", **words) == made

    assert tasks_started(spark, again) == 0

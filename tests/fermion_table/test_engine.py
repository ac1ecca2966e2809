"""What engines that write with tasks of their own take from a table: writers, tasks, checks."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import CompactionResult, ScanPlan, Table, WriteSettings
from fermion_table.engine import MAIN, FileSplit, StagedTable, check_overwrite, stage_table

SCHEMA = pa.schema([("id", pa.int64())])


def written(made: Table | StagedTable, **keywords):
    """What a task writes that was given a function to make its writer."""
    make = pickle.loads(pickle.dumps(made.writer_factory(**keywords)))
    with make() as writer:
        writer.write({"id": [1]})
        return writer.prepare_commit()


def test_a_task_makes_the_writer_that_the_table_would_make(table_path):
    table = Table.create(table_path, SCHEMA)
    table.branches.create("dev")
    dev = Table.open(table_path, branch="dev")
    (message,) = written(dev, settings=WriteSettings(threads=1))
    assert (message.branch, message.base_id) == ("dev", 0)
    assert message.table_uuid == table.snapshot.table_uuid
    dev.commit([message])
    merge = table.plan_merge(SCHEMA.append(pa.field("more", pa.int64())))
    table.commit(written(table, merge=merge), merge=merge)
    assert Table.open(table_path).schema.to_arrow(field_ids=False).names == ["id", "more"]
    with pytest.raises(TypeError, match="merge"):
        table.writer_factory(merge=SCHEMA)
    with pytest.raises(InvalidArgumentError, match="opened at version"):
        Table.open(table_path, version=0).writer_factory()


def test_a_task_makes_the_writer_of_a_staged_table(table_path):
    stage_table(table_path, SCHEMA).commit(written(stage_table(table_path, SCHEMA)))
    table = Table.open(table_path)
    (message,) = written(stage_table(table_path, SCHEMA, mode="replace"))
    assert (message.base_id, message.branch) == (1, MAIN)
    assert message.table_uuid == table.snapshot.table_uuid


def test_threads_of_a_writer_are_checked_and_leave_the_tables_profile(table_path):
    with pytest.raises(InvalidArgumentError, match="threads"):
        WriteSettings(threads=0)
    table = Table.create(table_path, SCHEMA, properties={"file.profile": "fast"})
    with table.writer(settings=WriteSettings(threads=1)) as writer:
        assert (writer._files._options.profile, writer._files._options.threads) == ("fast", 1)
    with table.writer() as writer:
        assert writer._files._options.threads is None


@pytest.mark.parametrize(
    "words", [{"commit_user": "job", "commit_identifier": 7}, {"properties": {"a": "b"}}]
)
def test_a_new_table_without_rows_remembers_who_made_it(table_path, words):
    made = stage_table(table_path, SCHEMA).commit([], message="made", **words)
    assert (made.id, made.message) == (1, "made")
    table = Table.open(table_path)
    assert [each.message for each in table.snapshots()] == ["made", "made"]
    if "commit_user" in words:
        assert table.find_commit("job", 7) == made
        assert table.append({"id": [1]}, **words) == made
    else:
        assert made.properties == {"a": "b"}


def test_few_files_are_spread_over_the_tasks_that_can_run_at_once():
    """A task is never cheaper than opening one file."""
    split = FileSplit(location="f", file="f", size=1 << 26, rows=1 << 20)
    plan = ScanPlan(snapshot_id=0, splits=[split])
    assert len(plan.tasks()) == 1
    pieces = plan.tasks(tasks_min=4)
    assert [part.rows_wanted for (part,) in pieces] == [1 << 18] * 4
    tiny = FileSplit(location="f", file="f", size=10, rows=10)
    small = ScanPlan(snapshot_id=0, splits=[tiny] * 3)
    assert [len(task) for task in small.tasks(tasks_min=8)] == [1, 1, 1]
    with pytest.raises(InvalidArgumentError, match="tasks_min"):
        plan.tasks(tasks_min=0)


def test_parts_of_a_compaction_add_up():
    whole = CompactionResult(dry_run=False, seconds=1.0)
    part = CompactionResult(
        groups=1,
        groups_dropped=2,
        files_before=3,
        files_after=4,
        bytes_before=5,
        bytes_after=6,
        rows=7,
        snapshots=[8],
        retries=9,
        seconds=10.0,
    )
    whole.add(part)
    whole.add(part)
    assert whole == CompactionResult(
        groups=2,
        groups_dropped=4,
        files_before=6,
        files_after=8,
        bytes_before=10,
        bytes_after=12,
        rows=14,
        snapshots=[8, 8],
        retries=18,
        seconds=1.0,
    )


def test_an_overwrite_that_cannot_be_done_is_refused_without_a_transaction(table_path):
    schema = Table.create(table_path, SCHEMA, partition_by=["id"]).schema
    flat = Table.create(table_path.with_name("flat"), SCHEMA).schema
    check_overwrite(schema, None, True, where="t")
    check_overwrite(flat, "id = 1", False, where="t")
    for given, error, text in (
        ((schema, "id = 1", True), InvalidArgumentError, "not both"),
        ((flat, None, True), InvalidArgumentError, "t: dynamic=True .* has none"),
        ((flat, "nothing = 1", False), ColumnNotFoundError, "nothing"),
        ((flat, None, 1), TypeError, "dynamic"),
    ):
        with pytest.raises(error, match=text):
            check_overwrite(*given, where="t")

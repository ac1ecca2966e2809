"""A valid call of every public function and method of tables that takes arguments."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import fermion
import fermion_table
from fermion_table import (
    SqlExpression,
    StorageAccess,
    Table,
    WriteSettings,
    lit,
)
from fermion_table.engine import (
    BufferPool,
    CommitMetadata,
    FoundRows,
    PartitionTransform,
    stage_table,
)
from fermion_table.mirrors.registry import Mirrors
from fermion_table.table.indexes import Indexes
from tests.acceptance.file_calls import TRAINING
from tests.acceptance.wrong_arguments import EVERYTHING, TEXTS, Case

ROWS = {"id": [1, 2, 3], "name": ["a", "b", "c"]}
CHANGES = {"id": [1, 2], "name": ["a", "b"], "change": ["insert", "delete"]}
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
UNTYPED = {
    "filter": TEXTS | {"None"},
    "data": frozenset[str](),
    "positions": frozenset({"None"}),
    "keys": frozenset[str](),
    "source": frozenset[str](),
    "on": frozenset[str](),
    "condition": TEXTS | {"None"},
    "schema": frozenset[str](),
    # Values: whether one fits its column is known when the change is applied.
    "default": EVERYTHING,
    "lit.value": EVERYTHING,
    "CommitMetadata.began": EVERYTHING,  # set by the package, for the commit's statistics
    "TableSchema.find.where": EVERYTHING,  # wording for a message, asked once a column
    "check_overwrite.where": EVERYTHING,
    "TableSchema.resolve.where": EVERYTHING,
}


def prepare(directory: Path) -> None:
    """A table of four snapshots, with a tag and a branch."""
    table = Table.create(directory / "t", SCHEMA, durability="fast")
    table.append(ROWS)
    table.append(ROWS)
    table.append_batch(5, ROWS)
    table.tags.create("first")
    table.branches.create("side")
    Table.create(directory / "k", SCHEMA, primary_key=["id"], durability="fast").upsert(ROWS)


def _indexes(table: Table) -> Indexes:
    """Those of a table that has one."""
    table.indexes.create("id")
    return table.indexes


def _mirrors(table: Table) -> Mirrors:
    """Those of a table that has one."""
    table.mirrors.create("delta", f"{table.location}-mirror")
    return table.mirrors


def _table(directory: Path) -> Table:
    return Table.open(directory / "t", durability="fast")


def _case(owner: Any, method: str, table: Table, arguments: dict[str, Any]) -> Case:
    def state() -> Any:
        return table.snapshot.id, table.schema, Table.open(table.location).scan().count()

    return Case(getattr(owner, method), arguments, state)


def _of_table(method: str, **arguments: Any) -> Callable[[Path], Case]:
    def case(directory: Path) -> Case:
        table = _table(directory)
        placed = {
            name: directory / value if isinstance(value, Path) else _made(value, table)
            for name, value in arguments.items()
        }
        return _case(table, method, table, placed)

    return case


def _made(value: Any, table: Table) -> Any:
    return value(table) if isinstance(value, _Of) else value


class _Of:
    """An argument that is made of the table."""

    def __init__(self, make: Callable[[Table], Any]) -> None:
        self._make = make

    def __call__(self, table: Table) -> Any:
        return self._make(table)


def _of(make: Callable[[Table], Any], method: str, **arguments: Any) -> Callable[[Path], Case]:
    """A method of an object that is made of the table, once."""

    def case(directory: Path) -> Case:
        table = _table(directory)
        placed = {name: _made(value, table) for name, value in arguments.items()}
        return _case(make(table), method, table, placed)

    return case


def _with_consumer(table: Table) -> Any:
    table.consumers.record("report")
    return table.consumers


def _of_keyed_table(make: Callable[[Table], Any], method: str, **arguments: Any) -> Any:
    """A method of a table with a primary key, or of an object that is made of it."""

    def case(directory: Path) -> Case:
        table = Table.open(directory / "k", durability="fast")
        return _case(make(table), method, table, arguments)

    return case


def free(call: Callable[..., Any], **arguments: Any) -> Callable[[Path], Case]:
    """A call of a function, whose paths lie in the directory."""

    def case(directory: Path) -> Case:
        placed = {
            name: directory / value if isinstance(value, Path) else value
            for name, value in arguments.items()
        }
        return Case(call, placed)

    return case


def _messages(table: Table) -> Any:
    with table.writer() as writer:
        writer.write(ROWS)
        return writer.prepare_commit()


def _merge(table: Table) -> Any:
    return table.plan_merge(SCHEMA)


def _merging(table: Table) -> Any:
    return table.merge(ROWS, ["id"])


def _staged(table: Table) -> Any:
    return stage_table(f"{table.location}-staged", SCHEMA)


def _updating(table: Table) -> Any:
    return table.update_schema()


def _compact_group(directory: Path) -> Case:
    table = _table(directory)
    (task,) = table.plan_compaction()
    return Case(fermion_table.engine.compact_group, {"task": task})


def _check_overwrite(directory: Path) -> Case:
    schema = _table(directory).schema
    given = {"schema": schema, "filter": "id > 1", "dynamic": False, "where": "t"}
    return Case(fermion_table.engine.check_overwrite, given)


WORDS: dict[str, Any] = {
    "message": "why",
    "properties": {"a.b": "c"},
    "commit_user": "somebody",
    "commit_identifier": 5,
}
MESSAGES = _Of(_messages)
DAY = datetime.timedelta(days=1)
COMPACTION: dict[str, Any] = {
    "filter": "id > 0",
    "target_size": 4096,
    "min_input_files": 2,
    "sort_by": ["id"],
    "full": False,
    "column_files_max": 3,
}
DEFINITION: dict[str, Any] = {
    "schema": SCHEMA,
    "partition_by": ["name"],
    "primary_key": ["id", "name"],
    "sort_by": ["id"],
    "properties": {"a.b": "c"},
    "storage_options": {},
}
OVERWRITE = {"data": ROWS, "filter": "id > 1", "dynamic": False}
PLACE = {"first": False, "before": "name", "after": None}
CALLS: dict[str, Callable[[Path], Case]] = {
    "Branches.create": _of(
        lambda t: t.branches, "create", name="other", version="first", message="why"
    ),
    "Branches.delete": _of(lambda t: t.branches, "delete", name="side"),
    "Branches.fast_forward": _of(lambda t: t.branches, "fast_forward", name="side", message="why"),
    "Branches.merge": _of(lambda t: t.branches, "merge", name="side", message="why"),
    "ChangePlan.tasks": _of(
        lambda t: t.scan_changes(0).plan(), "tasks", bytes_target=4096, tasks_min=2
    ),
    "ChangeScan.to_pandas": _of(lambda t: t.scan_changes(0), "to_pandas"),
    "BufferPool": free(BufferPool, bytes_max=4096),
    "CommitMetadata": free(CommitMetadata, **WORDS, began=1.5, properties_after=None),
    "DataWriter.append_batch": _of(
        lambda t: t.writer(),
        "append_batch",
        batch_id=5,
        data=ROWS,
        copy=True,
        positions=range(len(ROWS["id"])),
    ),
    "DataWriter.write": _of(lambda t: t.writer(), "write", data=ROWS, copy=True),
    "KeyWriter.write": _of_keyed_table(
        lambda t: t.writer(),
        "write",
        data=CHANGES,
        change_type="change",
        copy=True,
    ),
    "MergeBuilder.when_matched_delete": _of(
        _merging, "when_matched_delete", condition="source.id > 1"
    ),
    "MergeBuilder.when_matched_update": _of(
        _merging, "when_matched_update", set={"name": lit("x")}, condition="source.id > 1"
    ),
    "MergeBuilder.when_not_matched_by_source_delete": _of(
        _merging, "when_not_matched_by_source_delete", condition="target.id > 1"
    ),
    "MergeBuilder.when_not_matched_by_source_update": _of(
        _merging,
        "when_not_matched_by_source_update",
        set={"name": lit("x")},
        condition="target.id > 1",
    ),
    "MergeBuilder.when_not_matched_insert": _of(
        _merging, "when_not_matched_insert", values={"name": lit("x")}, condition="source.id > 1"
    ),
    "PartitionTransform": free(
        PartitionTransform, column="id", kind="bucket", parameter=5, name="b"
    ),
    "PartitionTransform.values": free(PartitionTransform("id").values, column=pa.array([1])),
    "Scan.explain": _of(Table.scan, "explain", files=1),
    "Scan.head": _of(Table.scan, "head", n=1),
    "Scan.head_scan": _of(Table.scan, "head_scan", n=1),
    "Scan.known_min_max": _of(Table.scan, "known_min_max", column="id"),
    "Scan.min_max": _of(Table.scan, "min_max", column="id"),
    "Scan.parts": _of(Table.scan, "parts", bytes_target=4096),
    "Scan.sample": _of(Table.scan, "sample", n=1, seed=1),
    "Scan.select": _of(Table.scan, "select", columns=["id"]),
    "Scan.take": _of(Table.scan, "take", rows=[0]),
    "Scan.to_arrow": _of(Table.scan, "to_arrow", progress=None),
    "Scan.to_duckdb": _of(Table.scan, "to_duckdb", connection=None),
    "Scan.to_pandas": _of(Table.scan, "to_pandas"),
    "Scan.to_polars": _of(Table.scan, "to_polars", lazy=True),
    "Scan.training": _of(Table.scan, "training", **TRAINING),
    "Scan.where": _of(Table.scan, "where", filter="id > 1"),
    "ScanPlan.tasks": _of(lambda t: t.scan().plan(), "tasks", bytes_target=4096, tasks_min=2),
    "SchemaUpdate.add_column": _of(
        _updating,
        "add_column",
        path="more",
        type=pa.int8(),
        nullable=True,
        default=1,
        comment="why",
        **PLACE,
    ),
    "SchemaUpdate.add_field": _of(
        _updating,
        "add_field",
        path=("more",),
        field=pa.field("more", pa.int8()),
        default=1,
        **PLACE,
    ),
    "SchemaUpdate.add_fields": _of(
        _updating, "add_fields", fields=[pa.field("more", pa.int8())], defaults={"more": 1}
    ),
    "SchemaUpdate.alter_column": _of(_updating, "alter_column", path="id", comment="why"),
    "SchemaUpdate.apply": _of(_updating, "apply", change=lambda schema: schema),
    "SchemaUpdate.drop_column": _of(_updating, "drop_column", path="id"),
    "SchemaUpdate.move_after": _of(_updating, "move_after", path="id", other="name"),
    "SchemaUpdate.move_before": _of(_updating, "move_before", path="id", other="name"),
    "SchemaUpdate.move_first": _of(_updating, "move_first", path="id"),
    "SchemaUpdate.rename_column": _of(_updating, "rename_column", path="id", name="other"),
    "SchemaUpdate.set_properties": _of(
        _updating, "set_properties", updates={"a.b": "c"}, remove=["c"]
    ),
    "SchemaUpdate.set_sort_order": _of(_updating, "set_sort_order", columns=["id"]),
    "CompactionResult.add": free(
        fermion_table.CompactionResult().add, part=fermion_table.CompactionResult()
    ),
    "check_overwrite": _check_overwrite,
    "StagedTable.commit": _of(_staged, "commit", messages=(), **WORDS),
    "StagedTable.discard": _of(_staged, "discard", messages=()),
    "StagedTable.writer": _of(_staged, "writer", settings=WriteSettings()),
    "StagedTable.writer_factory": _of(_staged, "writer_factory", settings=WriteSettings()),
    "lit": free(fermion_table.lit, value="text"),
    "SqlExpression": free(SqlExpression, text="id + 1"),
    "StorageAccess": free(
        StorageAccess, missing_is_forbidden=True, timeout_s=5.0, allowed_roots=["/data"]
    ),
    "Table.add_columns": _of_table(
        "add_columns", columns={"more": pa.int8()}, defaults={"more": 1}
    ),
    "Table.add_columns_with": _of_table(
        "add_columns_with",
        function=lambda rows: {"more": rows["id"]},
        read=["id"],
        schema=pa.schema([("more", pa.int64())]),
        batch_rows=100,
        threads=1,
        progress=lambda done, total: None,
        resume=None,
        runner=None,
        message="why",
    ),
    "Table.alter_column": _of_table("alter_column", name="id", comment="why"),
    "Table.add_files": _of_table("add_files", files=[], **WORDS),
    "Table.append": _of_table("append", data=ROWS, schema_mode="merge", progress=None, **WORDS),
    "Table.append_batch": _of_table("append_batch", batch_id=6, data=ROWS, message="why"),
    "Table.append_batches": _of_table("append_batches", batches=[(6, ROWS)], **WORDS),
    "Table.clone": _of_table(
        "clone",
        path=Path("clone"),
        version="first",
        storage_options={},
        durability="fast",
        message="why",
    ),
    "Table.commit": _of_table("commit", messages=MESSAGES, **WORDS, merge=_Of(_merge)),
    "Table.commit_compaction": _of_table(
        "commit_compaction", messages=[], base=_Of(lambda t: t.snapshot)
    ),
    "Table.commit_found": _of_table(
        "commit_found",
        rows=_Of(lambda t: FoundRows(base=t.snapshot, action="delete", filters=[])),
        messages=(),
        **WORDS,
    ),
    "Table.compact": _of_table(
        "compact",
        **COMPACTION,
        max_groups_per_commit=5,
        dry_run=False,
        threads=1,
        progress=lambda done, total: None,
    ),
    "Table.create": free(
        Table.create,
        path=Path("new"),
        **DEFINITION,
        data=None,
        mode="error",
        durability="fast",
        message="why",
        progress=None,
    ),
    "Table.delete_keys": _of_keyed_table(lambda t: t, "delete_keys", keys=[1, 7], **WORDS),
    "Table.count": _of_table("count", filter="id > 1"),
    "Table.delete": _of_table("delete", filter="id > 1", **WORDS),
    "Table.describe": _of_table("describe", columns=["id"], sample=3),
    "Table.diff": _of_table("diff", before=0, after=1),
    "Table.drop_columns": _of_table("drop_columns", columns=["id"]),
    "Table.exists": free(Table.exists, path=Path("t"), storage_options={}),
    "Table.fill_columns": _of_table(
        "fill_columns",
        data={"id": [1], "name": ["z"]},
        on=["id"],
        columns=["name"],
        unmatched="ignore",
        message="why",
    ),
    "Table.expire_snapshots": _of_table(
        "expire_snapshots", older_than=DAY, retain_last=5, dry_run=False
    ),
    "Table.find_commit": _of_table("find_commit", commit_user="somebody", commit_identifier=5),
    "Table.head": _of_table("head", n=3),
    "Table.history": _of_table("history", limit=5),
    "Table.history_html": _of_table("history_html", limit=5),
    "Table.show": _of_table("show", rows=5, snapshots=5),
    "Table.lookup": _of_keyed_table(
        lambda t: t, "lookup", keys=[1, 7], columns=["name"], snapshot_id=1, blobs="handles"
    ),
    "Table.lookup_batch": _of_table("lookup_batch", batch_id=5, columns=["id"]),
    "Table.merge": _of_table("merge", source=ROWS, on=["id"], schema_mode="merge", **WORDS),
    "Table.open": free(
        Table.open,
        path=Path("t"),
        version=None,
        branch="side",
        storage_options={},
        durability="fast",
        access=StorageAccess(),
    ),
    "Table.overwrite": _of_table("overwrite", **OVERWRITE, **WORDS),
    "Table.maintain": _of_table(
        "maintain", policy={"snapshot_age": "7d", "compact": True}, dry_run=False
    ),
    "Table.plan_compaction": _of_table("plan_compaction", **COMPACTION),
    "Table.plan_merge": _of_table("plan_merge", data=SCHEMA),
    "Table.remove_orphan_files": _of_table("remove_orphan_files", older_than=DAY, dry_run=False),
    "Table.rename_column": _of_table("rename_column", old="id", new="other"),
    "Table.repair": _of_table(
        "repair", dry_run=False, leave_out_missing=True, lost_deletions="leave_out"
    ),
    "Table.restore": _of_table("restore", version=1, message="why"),
    "Table.sample": _of_table("sample", n=3, seed=1),
    "Table.rows_at": _of_table("rows_at", positions=[0], columns=["id"]),
    "Table.scan": _of_table(
        "scan",
        columns=["id"],
        filter="id > 1",
        version=None,
        snapshot_id=None,
        tag=None,
        as_of=None,
        branch=None,
        batch_id=5,
        limit=5,
        schema="current",
        threads=1,
        mode="snapshot",
        blobs="bytes",
    ),
    "Table.scan_changes": _of_table(
        "scan_changes",
        start=0,
        end=1,
        columns=["id"],
        filter="id > 1",
        blobs="handles",
        threads=1,
    ),
    "Table.set_properties": _of_table("set_properties", updates={"a.b": "c"}, remove=["c"]),
    "Table.sql": _of_table("sql", query="FROM this"),
    "Table.to_arrow": _of_table("to_arrow", progress=None),
    "Table.to_duckdb": _of_table("to_duckdb", connection=None),
    "Table.to_pandas": _of_table("to_pandas"),
    "Table.to_polars": _of_table("to_polars", lazy=True),
    "Table.transaction": _of_table("transaction", **WORDS),
    "Table.upsert": _of_keyed_table(
        lambda t: t,
        "upsert",
        data=CHANGES,
        change_type="change",
        format=None,
        schema_mode="merge",
        progress=None,
        **WORDS,
    ),
    "Table.undo": _of_table("undo", commit=3, message="why"),
    "Table.update": _of_table("update", filter="id > 1", assignments={"name": lit("x")}, **WORDS),
    "Table.update_schema": _of_table("update_schema", message="why"),
    "Table.verify": _of_table("verify", data=True),
    "Table.writer": _of_table("writer", settings=WriteSettings()),
    "Table.writer_factory": _of_table(
        "writer_factory",
        settings=WriteSettings(),
        merge=_Of(_merge),
        overwrites=True,
        filter="id > 1",
    ),
    "TableDiff.rows": _of(lambda t: t.diff(0), "rows", columns=["id"], filter="id > 1"),
    "TableSchema.find": _of(lambda t: t.schema, "find", path="id", where="table"),
    "TableSchema.resolve": _of(lambda t: t.schema, "resolve", path="id", where="table"),
    "TableSchema.to_arrow": _of(lambda t: t.schema, "to_arrow", field_ids=False),
    "Indexes.create": _of(lambda t: t.indexes, "create", column="id", kind="bitmap"),
    "Indexes.drop": _of(_indexes, "drop", name="id"),
    "Indexes.rebuild": _of(_indexes, "rebuild", name="id", full=True),
    "Mirrors.create": _of(
        lambda t: t.mirrors,
        "create",
        kind="delta",
        location="lake",
        name="lake",
        history=False,
    ),
    "Mirrors.drop": _of(_mirrors, "drop", name="delta"),
    "Mirrors.publish": _of(_mirrors, "publish", name="delta", storage_options=None, runner=None),
    "Consumers.delete": _of(_with_consumer, "delete", name="report"),
    "Consumers.record": _of(lambda t: t.consumers, "record", name="report", version=1),
    "Tags.create": _of(
        lambda t: t.tags, "create", name="other", version="side", message="why", keep=DAY
    ),
    "Tags.delete": _of(lambda t: t.tags, "delete", name="first"),
    "Transaction.append": _of(Table.transaction, "append", data=ROWS),
    "Transaction.append_batches": _of(Table.transaction, "append_batches", batches=[(6, ROWS)]),
    "Transaction.append_written": _of(Table.transaction, "append_written", messages=MESSAGES),
    "Transaction.delete_keys": _of_keyed_table(Table.transaction, "delete_keys", keys=[1, 7]),
    "Transaction.delete": _of(Table.transaction, "delete", filter="id > 1"),
    "Transaction.merge": _of(Table.transaction, "merge", source=ROWS, on=["id"]),
    "Transaction.overwrite": _of(Table.transaction, "overwrite", **OVERWRITE),
    "Transaction.overwrite_written": _of(
        Table.transaction,
        "overwrite_written",
        messages=MESSAGES,
        filter="id > 1",
        dynamic=False,
        merge=_Of(_merge),
    ),
    "Transaction.upsert": _of_keyed_table(
        Table.transaction, "upsert", data=CHANGES, change_type="change", format=None
    ),
    "Transaction.update": _of(
        Table.transaction, "update", filter="id > 1", assignments={"name": lit("x")}
    ),
    "WriteSettings": free(
        WriteSettings,
        target_file_bytes=4096,
        file_options=fermion.WriteOptions(),
        threads=2,
        source="append",
        keeps_order=True,
        buffer_pool=BufferPool(4096),
    ),
    "compact_group": _compact_group,
    "drop_table": free(
        fermion_table.drop_table,
        path=Path("t"),
        storage_options={},
        dry_run=False,
        ignore_clones=False,
    ),
    "stage_table": free(stage_table, path=Path("new"), **DEFINITION, mode="create"),
}

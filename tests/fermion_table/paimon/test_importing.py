"""Tables of Paimon become tables of ours with the same history."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fermion_table
from fermion.cli import main
from fermion.errors import InvalidArgumentError
from fermion_table import Table, TableExists
from fermion_table.paimon import importing
from fermion_table.storage.local import LocalStore
from tests.kit.stores import Crash, CrashingStore
from tests.kit.tables.paimon_tables import (
    catalog_at,
    create,
    ordered,
    pypaimon,
    rows_of,
    rows_of_every_type,
    write,
)

from pypaimon.schema.data_types import AtomicType  # isort: skip
from pypaimon.schema.schema_change import Move, SchemaChange  # isort: skip

SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.string()), ("v", pa.int32()), ("kind", pa.string())]
)


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    return catalog_at(tmp_path / "warehouse")


def some(*ids: int, v: int = 0, kind: str = "+I") -> list[dict[str, Any]]:
    return [
        {"id": i, "day": f"d{i % 2}" if i < 90 else None, "v": i + v, "kind": kind} for i in ids
    ]


def altered(catalog: Any, name: str, *changes: Any) -> Any:
    catalog.alter_table(f"db.{name}", list(changes), False)
    return catalog.get_table(f"db.{name}")


def ours(table: Table, **version: Any) -> list[dict[str, Any]]:
    return ordered(table.scan(**version).to_arrow().to_pylist())


def history(table: Table) -> list[Any]:
    """What a history says and shows, without ids and times of commits."""
    return [
        (
            snapshot.kind,
            snapshot.commit_identifier,
            snapshot.properties,
            ours(table, version=snapshot.id),
            str(table.scan(version=snapshot.id).schema),
        )
        for snapshot in table.snapshots()
    ] + [(tag.name, tag.snapshot_id) for tag in table.tags.list()]


def check_equal(source: Any, table: Table) -> None:
    """Each snapshot of Paimon that is there has the rows that ours of it has."""
    imported = [each for each in table.snapshots() if each.commit_user]
    assert imported
    for snapshot in imported:
        number = str(snapshot.commit_identifier)
        assert ours(table, version=snapshot.id) == rows_of(source, scan__snapshot_id=number), number
    assert ours(table) == rows_of(source)


ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {"rowkind.field": "kind"},
    "sequence": {"sequence.field": "v"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.kind.aggregate-function": "max",
    },
    "partial-update": {"merge-engine": "partial-update"},
    "changelog": {"changelog-producer": "input", "bucket": "3"},
}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_keyed_table_has_the_rows_of_each_snapshot(catalog, tmp_path, engine):
    options = {"bucket": "2"} | ENGINES[engine]
    source = create(catalog, "t", SCHEMA, key=["id", "day"], partition_by=["day"], options=options)
    write(source, some(*range(10)))
    write(source, some(3, 4, 20, v=5))
    write(source, some(3, 4, v=-7))
    if engine == "deduplicate":
        write(source, some(5, 6, kind="-D"))
    write(source, some(40), {"day": "d0"})
    table = fermion_table.from_paimon(source, tmp_path / "ours")
    check_equal(source, table)
    assert table.primary_key == ["id", "day"]
    assert table.partition_by == ["day"]
    assert table.properties["bucket"] == options["bucket"]


def test_engines_that_pypaimon_does_not_merge_are_imported(catalog, tmp_path):
    """It refuses sequence groups, and shows of first_row what was compacted.

    What came is imported all the same; a state that has to be read whole is not.
    """
    options = {"bucket": "1", "merge-engine": "first-row"}
    first = create(catalog, "first", SCHEMA, key=["id"], options=options)
    options = {"bucket": "1", "merge-engine": "partial-update", "fields.v.sequence-group": "kind"}
    catalog.create_table("db.groups", _schema(options), False)
    groups = catalog.get_table("db.groups")
    for source in (first, groups):
        plain = source.copy({"merge-engine": "deduplicate", "fields.v.sequence-group": None})
        write(plain, some(1, 2, kind="a"))
        write(plain, some(2, 3, v=-1, kind="b"))
    assert ours(fermion_table.from_paimon(first, tmp_path / "first")) == some(
        1, 2, kind="a"
    ) + some(3, v=-1, kind="b")
    assert ours(fermion_table.from_paimon(groups, tmp_path / "groups")) == some(
        1, 2, kind="a"
    ) + some(3, v=-1, kind="b")
    Path(groups.table_path, "snapshot", "snapshot-1").unlink()
    with pytest.raises(InvalidArgumentError, match=r"snapshot 2 of .* read whole.*sequence-group"):
        fermion_table.from_paimon(groups, tmp_path / "later")


def _schema(options: dict[str, str]) -> Any:
    fields = [field.with_nullable(field.name != "id") for field in SCHEMA]
    return pypaimon.Schema.from_pyarrow_schema(
        pa.schema(fields), primary_keys=["id"], partition_keys=None, options=options
    )


@pytest.mark.parametrize("partition_by", [None, ["day"], ["v", "day"]])
def test_an_append_table_has_the_rows_of_each_snapshot(catalog, tmp_path, partition_by):
    source = create(catalog, "t", SCHEMA, partition_by=partition_by)
    write(source, some(*range(10), 91))
    write(source, some(3, 4, 92))
    write(source, some(5), {})
    table = fermion_table.from_paimon(source, tmp_path / "ours")
    check_equal(source, table)
    write(source, some(6))
    again = fermion_table.from_paimon(source.table_path, tmp_path / "ours")
    check_equal(source, again)
    assert [each.kind for each in again.snapshots()] == [
        "create",
        "append",
        "append",
        "overwrite",
        "append",
    ]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (pa.date32(), [dt.date(1960, 2, 29), dt.date(2026, 1, 2), None]),
        (pa.int8(), [-1, 5, None]),
        (pa.bool_(), [True, False, None]),
        (pa.timestamp("us"), [dt.datetime(1960, 1, 1, 0, 0, 0, 5), dt.datetime(2026, 1, 2), None]),
        (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("2.00"), None]),
    ],
    ids=str,
)
def test_partitions_of_other_types_are_overwritten_alone(catalog, tmp_path, dtype, values):
    """One commit replaces the partitions that it has rows of, by Paimon's dynamic overwrite."""
    schema = pa.schema([("id", pa.int64()), ("p", dtype)])
    source = create(catalog, "t", schema, partition_by=["p"])
    write(source, [{"id": n, "p": value} for n, value in enumerate(values * 2)])
    source = source.copy({"dynamic-partition-overwrite": "true"})
    for value in values:
        write(source, [{"id": 100, "p": value}], {})
    table = fermion_table.from_paimon(source, tmp_path / "ours")
    check_equal(source, table)
    counts = [table.count()] + [
        len(ours(table, version=snapshot.id)) for snapshot in table.snapshots()[1:]
    ]
    assert counts == [3, 6, 5, 4, 3]


def test_columns_are_the_same_by_field_id(catalog, tmp_path):
    """Names are swapped, dropped and taken again, widened and moved, in structs too."""
    inner = pa.struct([("x", pa.int32()), ("y", pa.string())])
    schema = pa.schema([("a", pa.int32()), ("b", pa.int32()), ("s", inner), ("gone", pa.int64())])
    source = create(catalog, "t", schema)
    write(source, [{"a": 1, "b": 2, "s": {"x": 1, "y": "p"}, "gone": 7}])
    change = SchemaChange
    source = altered(catalog, "t", change.rename_column("a", "c"), change.rename_column("b", "a"))
    source = altered(catalog, "t", change.rename_column("c", "b"), change.drop_column("gone"))
    source = altered(
        catalog,
        "t",
        change.add_column("gone", AtomicType("STRING"), "new", Move.first("gone")),
        change.update_column_type("a", AtomicType("BIGINT")),
        change.update_column_comment("b", "was a"),
        change.rename_column(["s", "y"], "z"),
        change.add_column(["s", "y"], AtomicType("DOUBLE")),
    )
    write(source, [{"gone": "n", "a": 2**40, "b": 5, "s": {"x": 2, "z": "q", "y": 0.5}}])
    table = fermion_table.from_paimon(source, tmp_path / "ours")
    check_equal(source, table)
    assert ours(table)[0] == {"gone": "n", "b": 5, "a": 2**40, "s": {"x": 2, "z": "q", "y": 0.5}}
    assert table.scan().schema.names == ["gone", "b", "a", "s"]
    assert table.scan().schema.field("gone").metadata[b"comment"] == b"new"
    assert table.scan().schema.field("b").metadata[b"comment"] == b"was a"


def test_an_aggregation_follows_its_renamed_column(catalog, tmp_path):
    """pypaimon leaves the old name in the options, and aggregates by another function then."""
    source = create(
        catalog, "t", SCHEMA, key=["id"], options={"bucket": "1"} | ENGINES["aggregation"]
    )
    write(source, some(1, 2))
    source = altered(catalog, "t", SchemaChange.rename_column("v", "total"))
    write(source, [{"id": 1, "day": "d1", "total": 10, "kind": "+I"}])
    table = fermion_table.from_paimon(source, tmp_path / "ours")
    assert {row["id"]: row["total"] for row in ours(table)} == {1: 11, 2: 2}
    assert table.properties["fields.total.aggregate_function"] == "sum"


def test_tags_keep_snapshots_that_have_expired(catalog, tmp_path):
    source = create(catalog, "t", SCHEMA, key=["id"], options={"bucket": "1"})
    write(source, some(1)).create_tag("one")
    write(source, some(2))
    write(source, some(1, v=9)).create_tag("three")
    for number in (1, 2):
        Path(source.table_path, "snapshot", f"snapshot-{number}").unlink()
    Path(source.table_path, "snapshot", "EARLIEST").write_text("3")
    table = fermion_table.from_paimon(source, tmp_path / "ours")
    assert ours(table, version="one") == rows_of(source, scan__tag_name="one") == some(1)
    assert ours(table, version="three") == ours(table) == rows_of(source)
    source.create_tag("late", 3)
    write(source, some(3))
    table = fermion_table.from_paimon(source, tmp_path / "ours")
    assert ours(table, version="late") == ours(table, version="three")
    assert ours(table) == rows_of(source)


@pytest.mark.parametrize("engine", ["deduplicate", "first-row"])
def test_the_first_state_has_rows_that_were_not_compacted(catalog, tmp_path, engine):
    options = {"bucket": "1", "merge-engine": engine}
    source = create(catalog, "t", SCHEMA, key=["id"], options=options)
    write(source, some(1, 2))
    write(source, some(2, 3, v=5))
    Path(source.table_path, "snapshot", "snapshot-1").unlink()
    Path(source.table_path, "snapshot", "EARLIEST").write_text("2")
    values = {
        row["id"]: row["v"] for row in ours(fermion_table.from_paimon(source, tmp_path / "o"))
    }
    assert values == {1: 1, 2: 2 if engine == "first-row" else 7, 3: 8}


def test_a_crash_after_any_storage_call_leaves_what_the_next_run_completes(
    catalog, tmp_path, monkeypatch
):
    """Each number of calls is tried; the histories after the second run are the one without."""
    source = create(catalog, "t", SCHEMA, key=["id"], options={"bucket": "1"})
    write(source, some(1, 2)).create_tag("one")
    source = altered(catalog, "t", SchemaChange.rename_column("v", "w"))
    write(source, [{"id": 2, "day": "x", "w": 3, "kind": "k"}])
    write(source, [{"id": 4, "day": "x", "w": 4, "kind": "k"}], {}).create_tag("three")
    expected = history(fermion_table.from_paimon(source, tmp_path / "whole"))
    calls, crashed = 0, True
    while crashed:
        calls += 1
        path = str(tmp_path / f"crash-{calls}")
        store = CrashingStore(LocalStore(path, durability="fast"), calls)
        with monkeypatch.context() as patched:
            patched.setattr(importing, "open_store", lambda *_, store=store, **__: store)
            try:
                fermion_table.from_paimon(source, path)
                crashed = False
            except Crash:
                pass
        assert history(fermion_table.from_paimon(source, path)) == expected, calls
    assert calls > 30


def test_options_without_a_counterpart_are_refused_by_name_or_listed(catalog, tmp_path):
    options = {"bucket": "1", "fields.v.pattern": "x", "file.format": "orc", "team.owner": "us"}
    source = create(catalog, "t", SCHEMA, key=["id"], options=options)
    write(source, some(1))
    with pytest.raises(
        InvalidArgumentError, match=r"fields\.v\.pattern: no counterpart; leave_out"
    ):
        fermion_table.from_paimon(source, tmp_path / "ours")
    assert not Table.exists(tmp_path / "ours")
    table = fermion_table.from_paimon(source, tmp_path / "ours", leave_out=["fields.v.pattern"])
    assert table.properties["paimon.left_out"] == "fields.v.pattern, file.format"
    assert table.properties["team.owner"] == "us"
    postponed = create(catalog, "p", SCHEMA, key=["id"], options={"bucket": "-2"})
    with pytest.raises(InvalidArgumentError, match="bucket=-2"):
        fermion_table.from_paimon(postponed, tmp_path / "postponed")


def test_other_tables_and_other_commits_are_refused(catalog, tmp_path):
    source = create(catalog, "t", SCHEMA)
    write(source, some(1))
    table = fermion_table.from_paimon(source, tmp_path / "ours")
    table.compact()
    fermion_table.from_paimon(source, tmp_path / "ours")
    other = write(create(catalog, "other", SCHEMA), some(1))
    with pytest.raises(TableExists, match=r"imported from paimon:other@\d+, found .*paimon:t@"):
        fermion_table.from_paimon(other, tmp_path / "ours")
    Table.open(tmp_path / "ours").append(some(2))
    with pytest.raises(InvalidArgumentError, match="snapshot 2 is a commit of somebody else"):
        fermion_table.from_paimon(source, tmp_path / "ours")
    with pytest.raises(InvalidArgumentError, match="expected a table of Paimon"):
        fermion_table.from_paimon(tmp_path / "ours", tmp_path / "twice")
    for wrong in ({"source": 5}, {"path": 5}, {"leave_out": 5}, {"leave_out": [5]}):
        given = {"source": source, "path": tmp_path / "twice"} | wrong
        with pytest.raises(TypeError, match=next(iter(wrong))):
            fermion_table.from_paimon(**given)
    for name in ("source_options", "storage_options"):
        with pytest.raises(TypeError, match=name):
            fermion_table.from_paimon(source, tmp_path / "twice", **{name: 5})


def test_a_table_without_snapshots_has_the_schema(catalog, tmp_path):
    source = create(catalog, "t", SCHEMA, key=["id"])
    table = fermion_table.from_paimon(source, tmp_path / "ours")
    assert table.columns == SCHEMA.names
    assert table.count() == 0
    write(source, some(1))
    assert ours(fermion_table.from_paimon(source, tmp_path / "ours")) == some(1)


def test_values_of_every_type_are_imported(catalog, tmp_path):
    rows = rows_of_every_type()
    source = write(create(catalog, "t", rows.schema), rows)
    table = fermion_table.from_paimon(source, tmp_path / "ours")
    found = table.scan().to_arrow()
    assert found.schema.names == rows.schema.names
    for name in rows.schema.names:
        assert (
            found[name].combine_chunks().cast(rows[name].type).equals(rows[name].combine_chunks())
        ), name


def test_the_command_imports_and_says_what_was_left_out(catalog, tmp_path, capsys):
    source = create(catalog, "t", SCHEMA, options={"file.format": "orc", "odd": "1"})
    write(source, some(1, 2)).create_tag("one")
    given = ["table", "import-paimon", source.table_path, str(tmp_path / "ours")]
    assert main(given) == 2
    assert "odd: no counterpart" in capsys.readouterr().err
    assert main([*given, "--leave-out", "odd"]) == 0
    printed = capsys.readouterr().out
    assert "snapshot 1: the table stores 2 rows, 1 tag" in printed
    assert "left out: file.format, odd" in printed


def test_branches_and_default_values_are_refused_by_name(catalog, tmp_path):
    """Both are left out where the caller says so, and the property lists defaults.

    pypaimon adds no default value, so that the schema's file gets one here, as Java writes it.
    """
    source = create(catalog, "t", SCHEMA)
    write(source, some(1))
    schema_file = Path(source.table_path, "schema", "schema-0")
    schema = json.loads(schema_file.read_text())
    (column,) = [field for field in schema["fields"] if field["name"] == "v"]
    column["defaultValue"] = "7"
    schema_file.write_text(json.dumps(schema))
    source = catalog.get_table("db.t")
    source.branch_manager().create_branch("trial")
    with pytest.raises(InvalidArgumentError, match="branches trial: an import has main alone"):
        fermion_table.from_paimon(source, tmp_path / "ours", leave_out=["default-values"])
    with pytest.raises(InvalidArgumentError, match=r"default-values \(of v\): no counterpart"):
        fermion_table.from_paimon(source, tmp_path / "ours", leave_out=["branches"])
    assert not Table.exists(tmp_path / "ours")
    leave_out = ["branches", "default-values"]
    table = fermion_table.from_paimon(source, tmp_path / "ours", leave_out=leave_out)
    assert table.properties["paimon.left_out"] == "default-values (of v)"
    assert table.count() == 1

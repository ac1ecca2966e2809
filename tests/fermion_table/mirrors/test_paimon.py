"""Paimon mirrors, read with pypaimon and with Paimon's Java engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError, UnsupportedTypeError
from fermion_table import CommitConflict, CorruptMetadata, Table
from tests.kit.tables.mirrored import (
    SCHEMA,
    SETTINGS,
    TYPES,
    history,
    paimon_versions,
    rows,
    shown,
)
from tests.kit.tables.paimon_java import engine
from tests.kit.tables.paimon_tables import arrow_of, catalog_at, create, read, write

from pypaimon.manifest.manifest_list_manager import ManifestListManager  # isort: skip


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    """Of Paimon: mirrors in `db.db` are its tables."""
    return catalog_at(tmp_path)


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    return tmp_path / "db.db" / "mirror"


def published(directory: Path, mirror: Path, **settings: Any) -> Table:
    """A table with ten rows and its mirror."""
    table = Table.create(directory, SCHEMA, durability="fast", **settings)
    table.append(rows(range(10)))
    table.mirrors.create("paimon", mirror)
    table.mirrors.publish()
    return table


def test_java_reads_every_kind_of_table_and_every_type(tmp_path, catalog):
    """It copies each mirror into a table that pypaimon reads."""
    tables = [history(tmp_path / f"t{at}", **each) for at, each in enumerate(SETTINGS)]
    types = Table.create(tmp_path / "types", pa.table(TYPES), durability="fast")
    java = engine(tmp_path)
    for at, table in enumerate([*tables, types]):
        table.mirrors.create("paimon", tmp_path / f"db.db/m{at}", history=table is not types)
        table.mirrors.publish()
        copy = create(catalog, f"copy{at}", arrow_of(catalog.get_table(f"db.m{at}")))
        assert java.copy(f"m{at}", f"copy{at}") == table.scan().count()
        assert shown(read(copy)) == shown(table.to_arrow())


def test_renaming_dropping_and_adding_columns_copies_no_file(tmp_path, mirror, catalog):
    table = published(tmp_path / "t", mirror)
    table.rename_column("v", "w")
    table.drop_columns(["w"])
    table.add_columns({"v": pa.float64()})
    table.rename_column("id", "number")
    (done,) = table.mirrors.publish()
    assert (len(done.snapshots), done.files_added) == (4, 0)
    found = catalog.get_table("db.mirror")
    assert shown(read(found)) == shown(table.to_arrow())
    assert {each.name: each.id for each in found.fields} == {
        each.name: each.id for each in table.schema.fields
    }


def test_fields_inside_columns_keep_their_ids_and_new_names_get_new_files(tmp_path, mirror):
    inner = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.map_(pa.string(), pa.int64())))])
    given = pa.table({"s": pa.array([{"a": 1, "b": [[("k", 2)]]}], inner)})
    table = Table.create(tmp_path / "t", given, durability="fast")
    table.mirrors.create("paimon", mirror)
    table.mirrors.publish()
    table.rename_column("s.a", "c")
    assert table.mirrors.publish()[0].files_added == 1
    (field,) = json.loads((mirror / "schema/schema-1").read_text())["fields"]
    assert [each["id"] for each in field["type"]["fields"]] == [
        child.id for child in table.schema.fields[0].children
    ]
    assert shown([found for _, _, found in paimon_versions(mirror)][-1]) == shown(table.to_arrow())


def test_snapshots_say_what_the_commits_did(tmp_path, mirror, catalog):
    table = published(tmp_path / "t", mirror)
    table.append(rows(range(10, 20)))
    table.delete("id = 3")
    table.delete("id > 9")
    table.append(rows([50]))
    table.compact()
    table.mirrors.publish()
    listed = catalog.get_table("db.mirror").snapshot_manager().list_snapshots()
    found = [
        (each.commit_kind, each.total_record_count, each.delta_record_count) for each in listed
    ]
    assert found == [
        ("APPEND", 10, 10),
        ("APPEND", 20, 10),
        ("OVERWRITE", 19, -1),
        ("OVERWRITE", 9, -10),
        ("APPEND", 10, 1),
        ("COMPACT", 10, 0),
    ]
    assert [each.commit_identifier for each in listed] == list(
        range(table.snapshot.id - 5, table.snapshot.id + 1)
    )


def test_files_that_come_back_are_shown(tmp_path, mirror, catalog):
    """A restored snapshot has files that later manifests of the mirror remove."""
    table = published(tmp_path / "t", mirror)
    there = table.snapshot.id
    table.delete("id >= 0")
    table.mirrors.publish()
    table.restore(there)
    (done,) = table.mirrors.publish()
    assert done.files_added == 1
    found = catalog.get_table("db.mirror")
    assert shown(read(found)) == shown(table.to_arrow())
    create(catalog, "copy", arrow_of(found))
    assert engine(tmp_path).copy("mirror", "copy") == 10


def test_many_manifests_become_one(tmp_path, mirror, catalog, monkeypatch):
    monkeypatch.setattr("fermion_table.mirrors.paimon.MANIFESTS_MAX", 3)
    table = published(tmp_path / "t", mirror)
    for number in range(10, 20):
        table.append(rows([number]))
        table.mirrors.publish()
    found = catalog.get_table("db.mirror")
    assert shown(read(found)) == shown(table.to_arrow())
    managers = found.snapshot_manager(), ManifestListManager(found)
    counts = [len(managers[1].read_all(each)) for each in managers[0].list_snapshots()]
    assert counts == [1, 2, 3, 4, 2, 3, 4, 2, 3, 4, 2]


def test_a_filter_reads_only_files_that_may_match(tmp_path, mirror, catalog):
    """By bounds of integers and texts, and by nulls, as Java plans it."""
    table = published(tmp_path / "t", mirror)
    table.append(rows(range(100, 110), "b" * 40))
    table.append(pa.table({"id": [None], "kind": [None], "v": [1.0]}, schema=SCHEMA))
    table.mirrors.publish()
    jpype = pytest.importorskip("jpype")
    java = engine(tmp_path)
    of_java = java.predicates("mirror")
    text = java.paimon.data.BinaryString.fromString
    for predicate, count in (
        (of_java.lessThan(0, jpype.JLong(5)), 10),
        (of_java.greaterThan(1, text("aa")), 10),
        (of_java.equal(1, text("c")), 0),
        (of_java.isNull(0), 1),
    ):
        builder = java.table("mirror").newReadBuilder().withFilter(predicate)
        splits = builder.newScan().plan().splits()
        assert sum(int(split.rowCount()) for split in splits) == count


def test_another_writer_is_noticed_and_named(tmp_path, mirror, catalog):
    table = published(tmp_path / "t", mirror)
    write(catalog.get_table("db.mirror"), rows([99]))
    with pytest.raises(CommitConflict, match=r"snapshot 2 \(APPEND by .*was not written by"):
        table.mirrors.publish()


def test_a_table_of_somebody_else_is_never_a_mirror(tmp_path, mirror, catalog):
    create(catalog, "mirror", SCHEMA)
    table = Table.create(tmp_path / "t", SCHEMA)
    with pytest.raises(InvalidArgumentError, match="a Paimon table that is no mirror of"):
        table.mirrors.create("paimon", mirror)


def test_a_schema_without_a_snapshot_is_gone_on_with(tmp_path, mirror):
    """A publication ended between them."""
    table = published(tmp_path / "t", mirror)
    for name in ("snapshot-1", "LATEST", "EARLIEST"):
        (mirror / "snapshot" / name).unlink()
    assert table.mirrors.publish()[0].snapshots == (table.snapshot.id,)
    assert [path.name for path in (mirror / "schema").iterdir()] == ["schema-0"]
    (mirror / "snapshot" / "snapshot-1").write_text("{")
    with pytest.raises(CorruptMetadata, match="a snapshot of Paimon"):
        table.mirrors.publish()


@pytest.mark.parametrize(
    ("column", "error", "match"),
    [
        (pa.field("t", pa.time64("us")), UnsupportedTypeError, r"column 't' is time64\[us\]"),
        (pa.field("t", pa.timestamp("ns")), UnsupportedTypeError, r"column 't' is timestamp\[ns\]"),
        (pa.field("_KEY_x", pa.int8()), InvalidArgumentError, "has this name for itself"),
        (pa.field("rowkind", pa.int8()), InvalidArgumentError, "has this name for itself"),
    ],
)
def test_what_paimon_lacks_is_refused_before_anything_is_written(
    tmp_path, mirror, column, error, match
):
    table = Table.create(tmp_path / "t", pa.schema([column]))
    with pytest.raises(error, match=match):
        table.mirrors.create("paimon", mirror)
    assert not mirror.exists()


def test_times_of_day_in_milliseconds_are_kept(tmp_path, mirror, catalog):
    given = pa.table({"s": pa.array([0, 86_399], pa.time32("s"))})
    table = Table.create(tmp_path / "t", given, durability="fast")
    table.mirrors.create("paimon", mirror)
    table.mirrors.publish()
    found = read(catalog.get_table("db.mirror"))
    assert found["s"].to_pylist() == given["s"].to_pylist()

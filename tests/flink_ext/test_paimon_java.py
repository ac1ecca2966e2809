"""Paimon's Java engine with `paimon-fermion.jar`: its files and those of pypaimon are the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fermion
from fermion_table.paimon import from_paimon, register
from tests.kit.tables.paimon_java import PROJECT, JavaEngine, engine
from tests.kit.tables.paimon_tables import (
    catalog_at,
    create,
    ordered,
    read,
    rows_of,
    rows_of_every_type,
    write,
)

from pypaimon.schema.data_types import AtomicType  # isort: skip
from pypaimon.schema.schema_change import SchemaChange  # isort: skip

FORMAT = {"file.format": "fermion"}
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("v", pa.int32())])


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("paimon")


@pytest.fixture(scope="module")
def catalog(warehouse: Path) -> Any:
    register()
    return catalog_at(warehouse)


@pytest.fixture(scope="module")
def java(warehouse: Path, catalog: Any) -> JavaEngine:
    return engine(warehouse)


def numbers(start: int, stop: int, v: int = 0) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"n{i:06}", "v": i + v} for i in range(start, stop)]


def files_of(table: Any) -> list[Path]:
    return sorted(Path(table.table_path).glob("**/data-*.fermion"))


def ids(rows: Any) -> list[int]:
    return sorted(int(row.getLong(0)) for row in rows)


def test_values_of_every_type_go_from_one_engine_to_the_other(catalog, java):
    """Java copies what pypaimon wrote as Parquet into Fermion files, and the other way round."""
    rows = rows_of_every_type()
    write(create(catalog, "parquet", rows.schema), rows)
    by_java = create(catalog, "by_java", rows.schema, options=FORMAT)
    assert java.copy("parquet", "by_java") == rows.num_rows
    assert read(by_java).sort_by("number").equals(rows)
    write(create(catalog, "by_python", rows.schema, options=FORMAT), rows)
    back = create(catalog, "back", rows.schema)
    assert java.copy("by_python", "back") == rows.num_rows
    assert read(back).sort_by("number").equals(rows)
    again = create(catalog, "again", rows.schema)
    assert java.copy("by_java", "again") == rows.num_rows
    assert read(again).sort_by("number").equals(rows)


def test_types_that_pypaimon_cannot_make_come_back_in_java(catalog, java):
    """MULTISET, VARIANT and VECTOR, also in rows, arrays and maps; CHAR and BINARY of a length."""
    jpype = pytest.importorskip("jpype")
    paimon, types = java.paimon, java.paimon.types.DataTypes
    variant = paimon.data.variant.GenericVariant.fromJson('{"a": [1, "x"]}')
    text = paimon.data.BinaryString.fromString
    row = paimon.data.GenericRow.of
    bag = paimon.data.GenericMap(jpype.java.util.Map.of(text("x"), jpype.JInt(2)))
    vector = paimon.data.BinaryVector.fromPrimitiveArray(jpype.JArray(jpype.JFloat)([0.5, -1.0]))
    nested = paimon.data.GenericArray(jpype.JArray(jpype.JObject)([row(variant, bag), None]))
    columns = {
        "k": (types.BIGINT().notNull(), jpype.JLong(1)),
        "c": (types.CHAR(3), text("abc")),
        "b": (types.BINARY(2), jpype.JArray(jpype.JByte)([1, -1])),
        "bag": (types.MULTISET(types.STRING()), bag),
        "variant": (types.VARIANT(), variant),
        "vector": (types.VECTOR(2, types.FLOAT()), vector),
        "nested": (types.ARRAY(types.ROW(types.VARIANT(), types.MULTISET(types.STRING()))), nested),
    }
    builder = paimon.schema.Schema.newBuilder().option("file.format", "fermion")
    for name, (kind, _) in columns.items():
        builder = builder.column(name, kind)
    identifier = paimon.catalog.Identifier.create("db", "more")
    java._catalog.createTable(identifier, builder.build(), False)
    writer, commit = java.writing("more")
    values = [value for _, value in columns.values()]
    writer.write(row(*values))
    writer.write(row(jpype.JLong(2), *[None] * (len(values) - 1)))
    commit.commit(writer.prepareCommit())
    writer.close()
    copied = paimon.data.serializer.InternalRowSerializer(java.table("more").rowType()).copy
    first, second = (copied(each) for each in java.rows("more"))
    assert [second.isNullAt(at) for at in range(len(values))] == [False] + [True] * 6
    assert str(first.getString(1)) == "abc"
    assert [int(byte) for byte in first.getBinary(2)] == [1, -1]
    assert (str(first.getMap(3).keyArray().getString(0)), first.getMap(3).size()) == ("x", 1)
    assert first.getMap(3).valueArray().getInt(0) == 2
    assert str(first.getVariant(4).toJson()) == '{"a":[1,"x"]}'
    assert [float(item) for item in first.getVector(5).toFloatArray()] == [0.5, -1.0]
    inner = first.getArray(6)
    assert inner.size() == 2
    assert inner.isNullAt(1)
    assert str(inner.getRow(0, 2).getVariant(0).toJson()) == '{"a":[1,"x"]}'
    assert inner.getRow(0, 2).getMap(1).valueArray().getInt(0) == 2


def test_blobs_of_a_table_are_read_as_they_were_written(catalog, java):
    """Paimon keeps BLOBs in files of their own beside those of the other columns."""
    jpype = pytest.importorskip("jpype")
    paimon, types = java.paimon, java.paimon.types.DataTypes
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    builder = paimon.schema.Schema.newBuilder()
    for name, value in (FORMAT | options).items():
        builder = builder.option(name, value)
    builder = builder.column("id", types.BIGINT()).column("picture", types.BLOB())
    identifier = paimon.catalog.Identifier.create("db", "blobs")
    java._catalog.createTable(identifier, builder.build(), False)
    writer, commit = java.writing("blobs")
    contents = {1: b"\x00\xff" * 50_000, 2: b"", 3: None}
    for number, content in contents.items():
        blob = None
        if content is not None:
            signed = [byte - 256 if byte > 127 else byte for byte in content]
            blob = paimon.data.Blob.fromData(jpype.JArray(jpype.JByte)(signed))
        writer.write(paimon.data.GenericRow.of(jpype.JLong(number), blob))
    commit.commit(writer.prepareCommit())
    writer.close()
    table = catalog.get_table("db.blobs")
    assert len(files_of(table)) == 1
    found = {
        int(row.getLong(0)): None if row.isNullAt(1) else bytes(row.getBlob(1).toData())
        for row in java.rows("blobs")
    }
    assert found == contents


def test_filters_and_columns_go_down_to_the_worker(catalog, java):
    """Paimon does not test the rows again, so that those that come were selected in the file."""
    table = create(catalog, "filtered", SCHEMA, options=FORMAT)
    write(table, numbers(0, 50_000))
    build = java.predicates("filtered")
    text = java.paimon.data.BinaryString.fromString
    jpype = pytest.importorskip("jpype")
    jlong, listed = jpype.java.lang.Long, jpype.java.util.ArrayList
    cases = {
        "between": ([build.between(0, jlong(49_000), jlong(49_002))], [49_000, 49_001, 49_002]),
        "in": ([build.in_(0, listed([jlong(7), jlong(70_000)]))], [7]),
        "text": ([build.equal(1, text("n000123"))], [123]),
        "starts": ([build.startsWith(1, text("n01234"))], list(range(12_340, 12_350))),
        "two": (
            [build.greaterThan(0, jlong(49_990)), build.lessOrEqual(0, jlong(49_992))],
            [49_991, 49_992],
        ),
        "none": ([build.isNull(2)], []),
    }
    for name, (predicates, expected) in cases.items():
        assert ids(java.rows("filtered", predicates=predicates)) == expected, name
    parts = listed([build.lessThan(0, jlong(2)), build.equal(1, text("n000009"))])
    either = java.paimon.predicate.PredicateBuilder.or_(parts)
    assert ids(java.rows("filtered", predicates=[either])) == [0, 1, 9]
    names = [str(row.getString(0)) for row in java.rows("filtered", columns=["name"])]
    assert len(names) == 50_000
    assert sum(1 for _ in java.rows("filtered", columns=[])) == 50_000


def test_a_keyed_table_is_merged_compacted_and_changed_in_java(catalog, java):
    options = FORMAT | {"bucket": "1", "num-sorted-run.compaction-trigger": "100"}
    table = create(catalog, "keyed", SCHEMA, key=["id"], options=options)
    for name, rows in (("one", numbers(0, 9000)), ("two", numbers(5000, 12_000, v=100))):
        write(create(catalog, name, SCHEMA), rows)
        java.copy(name, "keyed")
    expected = ordered(numbers(0, 5000) + numbers(5000, 12_000, v=100))
    assert rows_of(table) == expected
    java.compact("keyed", 0)
    assert table.snapshot_manager().get_latest_snapshot().commit_kind == "COMPACT"
    assert rows_of(catalog.get_table("db.keyed")) == expected
    assert ids(java.rows("keyed")) == list(range(12_000))
    catalog.alter_table(
        "db.keyed",
        [SchemaChange.rename_column("v", "w"), SchemaChange.add_column("x", AtomicType("DOUBLE"))],
        False,
    )
    table = catalog.get_table("db.keyed")
    write(table, [{"id": 3, "name": "new", "w": 7, "x": 0.5}])
    found = {
        row.getLong(0): (row.getInt(2), None if row.isNullAt(3) else row.getDouble(3))
        for row in java.rows("keyed")
    }
    assert len(found) == 12_000
    assert (found[3], found[11_999]) == ((7, 0.5), (12_099, None))


def test_deletion_vectors_of_java_hide_rows_in_both_engines(catalog, java):
    options = FORMAT | {"bucket": "1", "deletion-vectors.enabled": "true"}
    table = create(catalog, "vectors", SCHEMA, key=["id"], options=options)
    write(create(catalog, "first", SCHEMA), numbers(0, 10_000))
    write(create(catalog, "second", SCHEMA), numbers(100, 200, v=1_000_000))
    java.copy("first", "vectors")
    java.compact("vectors", 0)
    java.copy("second", "vectors")
    java.compact("vectors", 0)
    expected = ordered(numbers(0, 100) + numbers(100, 200, v=1_000_000) + numbers(200, 10_000))
    values = {int(row.getLong(0)): int(row.getInt(2)) for row in java.rows("vectors")}
    assert values == {row["id"]: row["v"] for row in expected}
    assert rows_of(table) == expected
    build = java.predicates("vectors")
    jlong = pytest.importorskip("jpype").java.lang.Long
    few = java.rows("vectors", predicates=[build.between(0, jlong(99), jlong(101))])
    found = {int(row.getLong(0)): int(row.getInt(2)) for row in few}
    assert {key: found[key] for key in (99, 100, 101)} == {99: 99, 100: 1_000_100, 101: 1_000_101}


@pytest.mark.parametrize(
    "options", [{}, {"deletion-vectors.enabled": "true"}], ids=["plain", "vectors"]
)
@pytest.mark.parametrize("is_expired", [False, True], ids=["from the first", "expired"])
def test_a_table_that_java_compacted_is_imported(catalog, java, tmp_path, options, is_expired):
    """Commit by commit, or from a state of compacted files, vectors and a file of level 0."""
    name = tmp_path.name.replace("[", "_").replace("]", "_").replace("-", "_")
    table = create(catalog, name, SCHEMA, key=["id"], options=FORMAT | {"bucket": "1"} | options)
    for number, rows in enumerate(
        (numbers(0, 3000), numbers(100, 200, v=50), numbers(150, 160, v=7))
    ):
        write(create(catalog, f"{name}_{number}", SCHEMA), rows)
        java.copy(f"{name}_{number}", name)
        if number < 2:
            java.compact(name, 0)
    snapshots = table.snapshot_manager().list_snapshots()
    assert "COMPACT" in [each.commit_kind for each in snapshots]
    if is_expired:
        for snapshot in snapshots[:-1]:
            Path(table.table_path, "snapshot", f"snapshot-{snapshot.id}").unlink()
        Path(table.table_path, "snapshot", "EARLIEST").write_text(str(snapshots[-1].id))
    ours = from_paimon(table, tmp_path / "ours")
    values = {row["id"]: row["v"] for row in ours.to_arrow().to_pylist()}
    expected = {n: n for n in range(3000)} | {n: n + 50 for n in range(100, 200)}
    assert values == expected | {n: n + 7 for n in range(150, 160)}
    assert len(ours.snapshots()) == (2 if is_expired else 4)


def test_selected_rows_of_a_remote_file_come_with_their_positions(catalog, java):
    """A proxy in place of a storage that only Paimon reads gives the bytes of a local file."""
    jpype = pytest.importorskip("jpype")
    table = write(create(catalog, "remote", SCHEMA, options=FORMAT), numbers(0, 20_000))
    paimon, fs = java.paimon, java.paimon.fs
    local = fs.Path(f"file://{files_of(table)[0]}")
    opened = []

    def stream(path: Any) -> Any:
        opened.append(str(path))
        return fs.local.LocalFileIO.create().newInputStream(local)

    def context(selection: Any) -> Any:
        answers = {
            "filePath": lambda: fs.Path("oss://bucket/data-1.fermion"),
            "fileIO": lambda: jpype.JProxy(fs.FileIO, dict={"newInputStream": stream}),
            "selection": lambda: selection,
        }
        return jpype.JProxy("org.apache.paimon.format.FormatReaderFactory$Context", dict=answers)

    row_type, no_filters = java.table("remote").rowType(), jpype.java.util.ArrayList()
    made = paimon.format.FileFormat.fromIdentifier("fermion", paimon.options.Options())
    factory = made.createReaderFactory(row_type, row_type, no_filters)
    drafts = set(Path(tempfile.gettempdir()).glob("paimon-*.fermion"))
    bitmaps = paimon.utils.RoaringBitmap32
    chosen = bitmaps.bitmapOf(3, 4, 5, 9_000, 19_999)
    for selection, expected in ((chosen, [3, 4, 5, 9_000, 19_999]), (None, list(range(20_000)))):
        reader = factory.createReader(context(selection))
        found = []
        while (batch := reader.readBatch()) is not None:
            while (row := batch.next()) is not None:
                assert row.getLong(0) == batch.returnedPosition()
                found.append(int(row.getLong(0)))
            batch.releaseBatch()
        reader.close()
        reader.close()  # Paimon may close twice
        assert found == expected
    assert opened == ["oss://bucket/data-1.fermion"] * 2
    assert set(Path(tempfile.gettempdir()).glob("paimon-*.fermion")) == drafts


def test_statistics_of_files_let_paimon_leave_files_out(catalog, java):
    table = create(catalog, "many", SCHEMA, options=FORMAT)
    for start in (0, 1000, 2000):
        write(create(catalog, f"part{start}", SCHEMA), numbers(start, start + 1000))
        java.copy(f"part{start}", "many")
    build = java.predicates("many")
    jlong = pytest.importorskip("jpype").java.lang.Long
    builder = java.table("many").newReadBuilder().withFilter(build.equal(0, jlong(1500)))
    splits = builder.newScan().plan().splits()
    assert sum(split.dataFiles().size() for split in splits) == 1
    predicates = table.new_read_builder().new_predicate_builder()
    assert read(table, predicate=predicates.equal("name", "n001500"))["id"].to_pylist() == [1500]


def children(parent: int) -> set[int]:
    listed = Path(f"/proc/{parent}/task").glob("*/children")
    return {int(pid) for file in listed for pid in file.read_text().split()}


def workers() -> set[int]:
    """Processes that were forked for this JVM: children of children of this process."""
    return {worker for daemon in children(os.getpid()) for worker in children(daemon)}


def is_running(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def write_all(rows: Any, writer: Any, commit: Any) -> None:
    for row in rows:
        writer.write(row)
    commit.commit(writer.prepareCommit())


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes by /proc")
def test_a_worker_killed_while_it_writes_fails_the_commit_and_leaves_the_table(catalog, java):
    table = write(create(catalog, "killed", SCHEMA, options=FORMAT), numbers(0, 10))
    write(create(catalog, "source", SCHEMA), numbers(10, 30_000))
    before, files = rows_of(table), files_of(table)
    drafts = set(Path(tempfile.gettempdir()).glob("paimon-*.fermion"))
    writer, commit = java.writing("killed")
    rows = java.rows("source")
    for _ in range(20_000):
        writer.write(next(rows))
    for worker in workers():
        os.kill(worker, signal.SIGKILL)
    with pytest.raises(Exception, match=r"the Python worker \d+ has ended"):
        write_all(rows, writer, commit)
    writer.close()
    commit.close()
    assert rows_of(table) == before
    assert files_of(table) == files
    assert set(Path(tempfile.gettempdir()).glob("paimon-*.fermion")) == drafts
    assert java.copy("source", "killed") == 29_990  # with a new worker
    assert len(rows_of(table)) == 30_000


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes by /proc")
def test_readers_that_are_left_early_end_their_worker_and_idle_ones_end_soon(catalog, java):
    write(create(catalog, "left", SCHEMA, options=FORMAT), numbers(0, 100_000))
    rows = java.rows("left")
    assert next(rows) is not None
    assert workers()
    rows.close()
    assert ids(java.rows("left")) == list(range(100_000))
    deadline = time.monotonic() + 60
    while workers() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not workers()


WRITES_AND_WAITS = """
import sys, time
from pathlib import Path
from tests.kit.tables.paimon_java import engine

java = engine(Path(sys.argv[1]))
(writer, commit), rows = java.writing("killed_java"), java.rows("source_of_it")
for _ in range(20_000):
    writer.write(next(rows))
print("writing", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes by /proc")
def test_no_worker_and_no_file_outlives_a_jvm_that_is_killed(catalog, java, warehouse, tmp_path):
    """SIGKILL, while one worker reads and one writes: nothing in the JVM can end them.

    The empty data file that Paimon had begun stays, until its procedure for orphans.
    """
    table = write(create(catalog, "killed_java", SCHEMA, options=FORMAT), numbers(0, 10))
    write(create(catalog, "source_of_it", SCHEMA, options=FORMAT), numbers(10, 100_000))
    before = rows_of(table)
    options = {"TMPDIR": str(tmp_path), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={tmp_path}"}
    process = subprocess.Popen(
        [sys.executable, "-c", WRITES_AND_WAITS, str(warehouse)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **options},
    )
    try:
        assert "writing" in process.stdout.readline()
        daemons = children(process.pid)
        started = daemons | {pid for daemon in daemons for pid in children(daemon)}
        assert len(started) >= 3
        assert list(tmp_path.glob("paimon-*.fermion"))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    deadline = time.monotonic() + 120
    while any(map(is_running, started)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [pid for pid in started if is_running(pid)] == []
    left = [*tmp_path.glob("fermion-*"), *tmp_path.glob("paimon-*.fermion")]
    assert left == []
    assert rows_of(table) == before


def test_a_file_that_is_damaged_is_an_error_that_names_it(catalog, java):
    table = write(create(catalog, "damaged", SCHEMA, options=FORMAT), numbers(0, 10))
    file = files_of(table)[0]
    file.write_bytes(file.read_bytes()[:-100] + bytes(100))
    with pytest.raises(Exception, match=file.name):
        ids(java.rows("damaged"))
    with pytest.raises(fermion.errors.FermionError):
        rows_of(table)

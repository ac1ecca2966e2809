"""Merges of rows: clauses, sources of all forms, what is read, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fermion
from fermion import variant
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import MergeResult, Table, lit
from fermion_table.errors import SchemaMismatch
from tests.kit.table_files import live_files, stored_files

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string()), ("v", pa.int64())])


def create(path, schema: pa.Schema = SCHEMA, **options) -> Table:
    return Table.create(path, schema, durability="fast", **options)


def filled(path, **options) -> Table:
    table = create(path, **options)
    table.append({"id": [1, 2, 3], "k": ["a", "b", "c"], "v": [10, 20, 30]})
    table.append({"id": [4, 5], "k": ["d", None], "v": [40, None]})
    return table


def rows_of(table: Table) -> list[tuple]:
    return sorted(zip(*table.scan().to_arrow().to_pydict().values(), strict=True), key=repr)


def counts(result: MergeResult) -> tuple[int, int, int]:
    return result.rows_inserted, result.rows_updated, result.rows_deleted


SOURCE = {"id": [2, 4, 9], "k": ["B", "D", "N"], "v": [21, 41, 91]}


def test_rows_that_match_are_updated_and_others_inserted_in_one_snapshot(table_path):
    table = filled(table_path)
    before = table.snapshot
    result = (
        table.merge(SOURCE, on=["id"]).when_matched_update().when_not_matched_insert().execute()
    )
    assert rows_of(table) == [
        (1, "a", 10), (2, "B", 21), (3, "c", 30), (4, "D", 41), (5, None, None), (9, "N", 91),
    ]  # fmt: skip
    assert counts(result) == (1, 2, 0)
    assert result.snapshot == table.snapshot == Table.open(table_path).snapshot
    assert (result.snapshot.id, result.snapshot.kind) == (before.id + 1, "upsert")
    assert result.snapshot.message == "merge on id: update, insert"
    assert repr(result) == "<MergeResult: snapshot 3, 1 rows inserted, 2 updated, 0 deleted>"
    assert table.scan(snapshot_id=before.id).count() == 5
    assert stored_files(table) >= live_files(table)


def test_the_first_clause_that_takes_a_row_decides(table_path):
    table = filled(table_path)
    result = (
        table.merge(SOURCE, ["id"])
        .when_matched_delete("target.k = 'b'")
        .when_matched_update({"v": "source.v"}, condition="source.v > 40")
        .when_matched_update({"v": 0})
        .when_not_matched_insert({"id": "source.id"}, condition="source.v < 0")
        .when_not_matched_insert({"id": "source.id", "k": lit("source.k")})
        .when_not_matched_by_source_update({"k": lit("left")}, "target.v = 10")
        .when_not_matched_by_source_delete("target.v IS NULL")
        .execute()
    )
    assert rows_of(table) == [
        (1, "left", 10), (3, "c", 30), (4, "d", 41), (9, "source.k", None),
    ]  # fmt: skip
    assert counts(result) == (1, 2, 2)


def test_columns_of_both_sides_are_compared_by_pyarrow(table_path):
    table = filled(table_path)
    newer = pc.field("source", "v") > pc.field("target", "v")
    source = {"id": [1, 2], "v": [5, 25]}
    builder = table.merge(source, ["id"])
    builder.when_matched_update({"v": pc.field("target", "v") + pc.field("source", "v")}, newer)
    assert repr(builder) == "<MergeBuilder on id: when_matched_update>"
    assert counts(builder.execute()) == (0, 1, 0)
    assert rows_of(table)[:2] == [(1, "a", 10), (2, "b", 45)]


def test_functions_see_both_sides_as_structs(table_path):
    table = filled(table_path)

    def longest(rows: pa.RecordBatch) -> pa.Array:
        assert rows.schema.names == ["target", "source"]
        target, source = (pc.struct_field(rows.column(side), "k") for side in rows.schema.names)
        return pc.binary_join_element_wise(target, source, "+")

    table.merge(SOURCE, ["id"]).when_matched_update({"k": longest}).execute()
    assert [k for _, k, _ in rows_of(table)] == ["a", "b+B", "c", "d+D", None]


def test_text_that_begins_like_a_column_is_given_as_a_scalar(table_path):
    table = filled(table_path)
    builder = table.merge({"id": [1, 2]}, ["id"])
    with pytest.raises(ColumnNotFoundError, match=r"source\.k.*source\.COLUMN"):
        builder.when_matched_update({"k": "source.k"})
    builder.when_matched_update({"k": pa.scalar("source.k")}).execute()
    assert [k for _, k, _ in rows_of(table)[:2]] == ["source.k", "source.k"]


def test_a_mapping_names_the_key_columns_of_the_source(table_path):
    table = filled(table_path)
    source = {"key": [2, 7], "k": ["x", "y"], "v": [1, 2]}
    builder = table.merge(source, on={"id": "key"})
    builder.when_matched_update().when_not_matched_insert().execute()
    assert (2, "x", 1) in rows_of(table)
    assert (7, "y", 2) in rows_of(table)


def test_several_rows_of_the_source_for_one_of_the_table_are_an_error(table_path):
    table = filled(table_path)
    before, files = rows_of(table), stored_files(table)
    source = {"id": [2, 3, 2], "k": ["x", "y", "z"], "v": [1, 2, 3]}
    for add in ("when_matched_update", "when_matched_delete"):
        builder = getattr(table.merge(source, ["id"]), add)()
        with pytest.raises(InvalidArgumentError, match=r"rows 0 and 2.*\{'id': 2\}"):
            builder.execute()
    assert (rows_of(table), table.refresh().id, stored_files(table)) == (before, 2, files)
    # A condition that one of them meets, and no clause for pairs at all, are fine.
    builder = table.merge(source, ["id"]).when_matched_update(condition="source.k <> 'x'")
    assert counts(builder.execute()) == (0, 2, 0)
    builder = table.merge(source, ["id"]).when_not_matched_insert()
    assert counts(builder.execute()) == (0, 0, 0)
    assert rows_of(table)[1:3] == [(2, "z", 3), (3, "y", 2)]


def test_repeated_rows_of_the_source_without_a_partner_are_all_inserted(table_path):
    table = create(table_path)
    source = {"id": [7, 7, None, None], "k": list("abcd"), "v": [1, 2, 3, 4]}
    assert counts(table.merge(source, ["id"]).when_not_matched_insert().execute()) == (4, 0, 0)
    assert counts(table.merge(source, ["id"]).when_not_matched_insert().execute()) == (2, 0, 0)
    assert [row[:2] for row in rows_of(table)] == [
        (7, "a"), (7, "b"), (None, "c"), (None, "c"), (None, "d"), (None, "d"),
    ]  # fmt: skip


def test_a_merge_that_changes_nothing_makes_no_snapshot(table_path):
    table = filled(table_path)
    before, files = table.snapshot, stored_files(table)
    for source in (SCHEMA.empty_table(), [], {"id": [77], "k": ["q"], "v": [7]}):
        result = table.merge(source, ["id"]).when_matched_update().execute()
        assert (result.snapshot.id, counts(result)) == (before.id, (0, 0, 0))
    assert stored_files(table) == files


def test_an_empty_source_leaves_every_row_of_the_table_alone(table_path):
    table = filled(table_path)
    builder = table.merge(SCHEMA.empty_table(), ["id"])
    assert counts(builder.when_not_matched_by_source_delete().execute()) == (0, 0, 5)
    assert table.scan().count() == 0


def test_sources_come_in_every_form(table_path):
    pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    whole = pa.table({"id": [99, 1, 8], "k": ["no", "x", "y"], "v": [0, 1, 2]})
    whole = whole.set_column(1, "k", whole["k"].dictionary_encode())
    sliced = pa.concat_tables([whole.slice(1, 1), whole.slice(2)])
    forms = [
        sliced,
        sliced.combine_chunks().to_batches()[0],
        sliced.to_reader(),
        (batch for batch in sliced.to_batches()),
        sliced.to_pandas(),
        polars.from_arrow(sliced.set_column(1, "k", sliced["k"].cast("string"))),
        sliced.to_pydict(),
    ]
    for number, source in enumerate(forms):
        table = filled(table_path / str(number))
        builder = table.merge(source, ["id"]).when_matched_update().when_not_matched_insert()
        assert counts(builder.execute()) == (1, 1, 0), number
        assert {(1, "x", 1), (8, "y", 2)} <= set(rows_of(table))


def test_rows_of_batches_are_updated_where_they_are(table_path):
    table = create(table_path)
    table.append_batches((n, {"id": range(4 * n, 4 * n + 4), "v": [n] * 4}) for n in range(3))
    before = table.scan(columns=["id", "batch_id", "index_in_batch"]).to_arrow()
    source = {"id": [1, 6, 11], "v": [-1, -6, -11]}
    builder = table.merge(source, ["id"]).when_matched_update({"v": "source.v"}, "source.v > -10")
    builder.when_matched_update({"v": 0}).execute()
    assert table.scan(columns=before.schema.names).to_arrow().equals(before)
    v = table.scan(columns=["v"]).to_arrow()["v"].to_pylist()
    assert v == [0, -1, 0, 0, 1, 1, -6, 1, 2, 2, 2, 0]
    builder = table.merge({"id": [0, 4, 5, 6, 7, 9]}, ["id"]).when_matched_delete("target.v < 9")
    builder = builder.when_not_matched_by_source_update({"k": lit("alone")})
    assert counts(builder.execute()) == (0, 6, 6)
    assert table.lookup_batch(0)["id"].to_pylist() == [1, 2, 3]
    assert table.scan(filter="batch_id = 1").count() == 0
    assert table.lookup_batch(2)["k"].to_pylist() == ["alone"] * 3
    assert table.verify(data=True).ok


def test_updated_rows_move_to_their_new_partition(table_path):
    table = filled(table_path, partition_by="k")
    table.merge(SOURCE, ["id"]).when_matched_update({"k": "source.k"}).execute()
    assert table.scan(filter="k = 'B'").to_arrow()["v"].to_pylist() == [20]
    assert table.scan(filter="k = 'b'").count() == 0
    assert table.verify(data=True).ok


def test_nested_columns_are_set_as_a_whole(table_path):
    inner = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    table = create(table_path, pa.schema([("id", pa.int64()), ("s", inner)]))
    table.append({"id": [1, 2, 3], "s": [{"x": 1, "y": ["a"]}, None, {"x": 3, "y": None}]})
    source = pa.table(
        {
            "id": [1, 3, 4],
            "s": pa.array(
                [{"y": ["p"], "x": 10}, {"y": [], "x": 30}, None],
                pa.struct([("y", pa.large_list(pa.string())), ("x", pa.int64())]),
            ),
        }
    )
    builder = table.merge(source, ["id"]).when_matched_update(condition="target.s.x < 3")
    builder.when_not_matched_insert().execute()
    assert rows_of(table) == [
        (1, {"x": 10, "y": ["p"]}), (2, None), (3, {"x": 3, "y": None}), (4, None),
    ]  # fmt: skip


def test_columns_that_are_not_named_get_their_default(table_path):
    table = filled(table_path)
    table.add_columns({"n": pa.int8()}, defaults={"n": 7})
    table.merge(SOURCE, ["id"]).when_matched_update({"v": 0}).when_not_matched_insert().execute()
    assert (9, "N", 91, 7) in rows_of(table)
    assert (2, "b", 0, 7) in rows_of(table)


def test_columns_of_the_source_are_added_in_the_same_snapshot(table_path):
    table = filled(table_path)
    version = table.snapshot.id
    source = {**SOURCE, "new": [1.5, 2.5, 3.5], "op": ["u", "x", "u"]}
    builder = table.merge(source, ["id"], schema_mode="merge")
    builder.when_matched_update(condition="source.op = 'u'").when_not_matched_insert().execute()
    assert table.snapshot.id == version + 1
    assert table.schema.names == ["id", "k", "v", "new"]
    assert (2, "B", 21, 1.5) in rows_of(table)
    assert (4, "d", 40, None) in rows_of(table)
    assert (9, "N", 91, 3.5) in rows_of(table)
    assert table.verify(data=True).ok
    with pytest.raises(InvalidArgumentError, match="schema_mode"):
        table.merge(source, ["id"], schema_mode="add")


@pytest.mark.parametrize(
    ("source", "on", "error", "match"),
    [
        (SOURCE, [], InvalidArgumentError, "on: expected at least one"),
        (SOURCE, ["id", "id"], InvalidArgumentError, "named twice"),
        (SOURCE, ["idd"], ColumnNotFoundError, "'idd'.*id"),
        (SOURCE, {"id": "key"}, ColumnNotFoundError, "source.*'key'"),
        (SOURCE, 5, TypeError, "on"),
        (SOURCE, [5], TypeError, "on"),
        (SOURCE, {"id": 5}, TypeError, "on"),
        (SOURCE, None, TypeError, "on"),
        ({"id": ["1"], "k": ["x"]}, ["id"], InvalidArgumentError, "'id'"),
        (pa.table({"id": ["1"]}), ["id"], SchemaMismatch, "on: column 'id'.*int64.*string"),
        (pa.table({"id": [1.5]}), ["id"], SchemaMismatch, "on: column 'id'.*1.5"),
        (pa.table([[1], [1]], ["id", "id"]), ["id"], InvalidArgumentError, "more than one"),
        (5, ["id"], InvalidArgumentError, "found int"),
    ],
)
def test_sources_and_keys_that_make_no_sense_are_refused(table_path, source, on, error, match):
    table = filled(table_path)
    files = stored_files(table)
    with pytest.raises(error, match=match):
        table.merge(source, on).when_matched_delete().execute()
    assert stored_files(table) == files


@pytest.mark.parametrize(
    ("method", "arguments", "error", "match"),
    [
        ("when_matched_update", [{}], InvalidArgumentError, "expected a column to set"),
        ("when_matched_update", ["v"], TypeError, "set: expected a mapping"),
        ("when_matched_update", [{"w": 1}], ColumnNotFoundError, "'w'"),
        ("when_matched_update", [{"v": "text"}], ColumnNotFoundError, r"'v': .*lit\('text'\)"),
        ("when_matched_update", [{"v": "source.k"}], SchemaMismatch, "v: .*int64.*string"),
        ("when_matched_update", [{"v": pc.field("k")}], ColumnNotFoundError, "source.COLUMN"),
        ("when_matched_update", [{"v": fermion.col("v") > 1}], InvalidArgumentError, "no value"),
        ("when_matched_update", [None, "v > 1"], ColumnNotFoundError, "target.COLUMN"),
        ("when_matched_update", [None, 5], InvalidArgumentError, "filter of type int"),
        ("when_matched_update", [None, "source.v > 'x'"], InvalidArgumentError, "source.v"),
        ("when_matched_delete", ["source.q = 1"], ColumnNotFoundError, "source.q"),
        ("when_not_matched_insert", [None, "target.v = 1"], ColumnNotFoundError, "source.COLUMN"),
        ("when_not_matched_insert", [{"v": "target.v"}], ColumnNotFoundError, "target"),
        ("when_not_matched_by_source_update", [None], InvalidArgumentError, "expected the columns"),
        ("when_not_matched_by_source_update", [{"v": "source.v"}], ColumnNotFoundError, "source"),
        ("when_not_matched_by_source_delete", ["source.v = 1"], ColumnNotFoundError, "source"),
    ],
)
def test_clauses_that_make_no_sense_are_refused_at_once(
    table_path, method, arguments, error, match
):
    table = filled(table_path)
    builder = table.merge(SOURCE, ["id"])
    with pytest.raises(error, match=match):
        getattr(builder, method)(*arguments)
    with pytest.raises(InvalidArgumentError, match="add a clause"):
        builder.execute()


def test_a_clause_that_is_never_reached_is_refused(table_path):
    builder = filled(table_path).merge(SOURCE, ["id"]).when_matched_update()
    with pytest.raises(InvalidArgumentError, match="takes every row"):
        builder.when_matched_delete("source.v = 1")
    builder.when_not_matched_insert().when_not_matched_by_source_delete().execute()
    with pytest.raises(InvalidArgumentError, match="executed before"):
        builder.execute()


def test_a_column_of_the_source_that_nothing_reads_is_refused_where_all_are_taken(table_path):
    table = filled(table_path)
    misspelled = {"id": [2], "k": ["x"], "val": [1]}
    with pytest.raises(SchemaMismatch, match="the source has no column 'v'"):
        table.merge(misspelled, ["id"]).when_matched_update()
    with pytest.raises(SchemaMismatch, match="no column 'val'"):
        table.merge(misspelled, ["id"]).when_not_matched_insert().execute()
    table.merge(misspelled, ["id"]).when_matched_update({"k": "source.k"}).execute()
    assert (2, "x", 20) in rows_of(table)


def test_not_null_columns_refuse_nulls_and_leave_no_file(table_path):
    table = create(table_path, pa.schema([SCHEMA.field(0), pa.field("v", pa.int64(), False)]))
    table.append({"id": [1, 2], "v": [1, 2]})
    files = stored_files(table)
    source = pa.table({"id": [1, 9], "v": pa.array([5, None], pa.int64())})
    builder = table.merge(source, ["id"]).when_matched_update().when_not_matched_insert()
    with pytest.raises(SchemaMismatch, match="'v' is NOT NULL"):
        builder.execute()
    with pytest.raises(SchemaMismatch, match="v: int64 not null"):
        table.merge(source, ["id"]).when_not_matched_insert({"id": "source.id"})
    assert rows_of(table) == [(1, 1), (2, 2)]
    assert stored_files(table) == files


def test_a_failing_function_leaves_no_file_and_a_usable_transaction(table_path):
    table = filled(table_path)
    files = stored_files(table)

    def fails(rows: pa.RecordBatch) -> pa.Array:
        raise RuntimeError("no")

    builder = table.merge(SOURCE, ["id"]).when_matched_update(condition="source.id = 2")
    with pytest.raises(RuntimeError, match="no"):
        builder.when_matched_update({"v": fails}).execute()
    assert stored_files(table) == files
    with table.transaction() as tx:
        with pytest.raises(InvalidArgumentError, match="0 values for 1 rows"):
            tx.merge(SOURCE, ["id"]).when_matched_update({"v": lambda rows: []}).execute()
        tx.append({"id": [6]})
    assert len(rows_of(table)) == 6


def test_steps_of_a_transaction_see_what_a_merge_did(table_path):
    table = filled(table_path)
    version = table.snapshot.id
    with table.transaction() as tx:
        tx.append({"id": [9], "k": ["new"], "v": [0]})
        first = tx.merge(SOURCE, ["id"]).when_matched_update().when_not_matched_insert().execute()
        tx.delete("v = 41")
        second = tx.merge({"id": [9]}, ["id"]).when_matched_delete().execute()
    assert (first.snapshot, counts(first), counts(second)) == (None, (0, 3, 0), (0, 0, 1))
    assert "no snapshot yet" in repr(first)
    assert table.snapshot.id == version + 1
    assert rows_of(table) == [(1, "a", 10), (2, "B", 21), (3, "c", 30), (5, None, None)]
    assert table.verify(data=True).ok
    with pytest.raises(InvalidArgumentError, match="finished"):
        tx.merge(SOURCE, ["id"])


def test_the_same_identifier_merges_once(table_path):
    table = filled(table_path)
    for number in range(2):
        builder = table.merge(
            {"id": [1]}, ["id"], message="again", commit_user="job", commit_identifier=5
        )
        result = builder.when_matched_update({"v": pc.field("target", "v") + 1}).execute()
        assert counts(result) == (0, 1 - number, 0)
        assert result.snapshot.id == 3
    assert result.snapshot.message == "again"
    assert rows_of(Table.open(table_path))[0] == (1, "a", 11)
    assert stored_files(table) >= live_files(table)


def test_a_table_opened_at_a_version_refuses_a_merge(table_path):
    filled(table_path)
    with pytest.raises(InvalidArgumentError, match="can only be"):
        Table.open(table_path, version=1).merge(SOURCE, ["id"])


@pytest.mark.parametrize("text", ["source.{}", 'source."{}"', "source.{} + 0"])
def test_columns_that_differ_in_case_alone_are_set_from_their_own(table_path, text):
    """DuckDB finds fields of structs whatever their case, and a side of a merge was a struct."""
    table = create(table_path, pa.schema(dict.fromkeys(["id", "v", "V"], pa.int64())))
    table.append({"id": [1, 2], "v": [10, 20], "V": [100, 200]})
    source = {"id": [1], "v": [11], "V": [111]}
    values = {name: text.format(name) for name in ("v", "V")}
    table.merge(source, on="id").when_matched_update(values).execute()
    assert rows_of(table) == [(1, 11, 111), (2, 20, 200)]


@pytest.mark.parametrize("text", ["source.event", 'source."event"', "coalesce(source.event, NULL)"])
def test_sql_gives_variant_columns_values(table_path, text):
    events = variant.from_json(['{"a":1}', "[1]"])
    table = create(table_path, pa.schema([("id", pa.int64()), ("event", events.type)]))
    table.append({"id": [1, 2], "event": events})
    source = pa.table({"id": [1], "event": variant.from_json(['{"a":2}'])})
    table.merge(source, on="id").when_matched_update({"event": text}).execute()
    found = table.scan().to_arrow().sort_by("id")["event"]
    assert variant.to_json(found).to_pylist() == ['{"a":2}', "[1]"]

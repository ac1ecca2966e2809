"""Files of one layout share what is known of their columns; each still gives its own rows."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest

import fermion
from fermion.errors import ColumnNotFoundError
from fermion.reading import index as file_index
from fermion.reading import projection
from tests.kit.equality import assert_logically_equal

FIELDS = [
    pa.field("a", pa.int64()),
    pa.field("b", pa.string(), nullable=False),
    pa.field("s", pa.struct([("a", pa.int8()), ("d", pa.dictionary(pa.int8(), pa.string()))])),
]
ROWS = [{"a": n, "b": f"b{n}", "s": {"a": -n, "d": f"d{n % 3}"}} for n in range(20)]


def stored(fields: list[pa.Field], rows: list[dict], path: Path) -> tuple[Path, pa.Table]:
    table = pa.Table.from_pylist(rows, schema=pa.schema(fields))
    fermion.write_table(table, path)
    return path, table


def test_files_that_differ_in_order_type_or_ids_are_not_mixed_up(tmp_path: Path) -> None:
    """Every order of the columns, a wider type, a field's metadata, other rows; read in turns."""
    wider = [FIELDS[0].with_type(pa.int32()), *FIELDS[1:]]
    numbered = [FIELDS[0].with_metadata({"PARQUET:field_id": "7"}), *FIELDS[1:]]
    layouts = [*map(list, itertools.permutations(FIELDS)), wider, numbered, FIELDS]
    files = [
        stored(fields, ROWS[number:], tmp_path / str(number))
        for number, fields in enumerate(layouts)
    ]
    for columns in (None, ["b", "a"], ["s.d"], [("s", "a"), ("s", "d"), "a"], [1]):
        for path, table in [*files, *files]:
            with fermion.open(path) as file:
                found = file.read(columns)
            projection._known.clear()
            fresh = fermion.read_table(path, columns=columns)
            fermion.read_table(files[0][0], columns=columns)
            assert found.schema.equals(fresh.schema, check_metadata=True)
            assert_logically_equal(found, fresh)
            if columns is None:
                assert_logically_equal(found, table)
            for field in found.schema:
                if field.name != "s":
                    assert found[field.name].to_pylist() == table[field.name].to_pylist()


def test_of_files_alike_only_the_first_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = stored(FIELDS, ROWS, tmp_path / "first")
    second, table = stored(FIELDS, ROWS[5:], tmp_path / "second")
    fermion.read_table(first, columns=["b", "a"])

    def refuse(*arguments: object) -> None:
        raise AssertionError("names are looked up again")

    monkeypatch.setattr(file_index, "NameIndex", refuse)
    found = fermion.read_table(second, columns=["b", "a"])
    assert_logically_equal(found, table.select(["b", "a"]))


def test_a_missing_column_is_missed_in_the_file_at_hand(tmp_path: Path) -> None:
    for name in ("first", "second"):
        path, _ = stored(FIELDS, ROWS, tmp_path / name)
        with pytest.raises(ColumnNotFoundError, match=f"{name}.*'A'"):
            fermion.read_table(path, columns=["A"])


def test_what_is_known_is_bounded(tmp_path: Path) -> None:
    for number in range(projection.FILES_KNOWN_MAX + 20):
        path, _ = stored([pa.field(f"c{number}", pa.int8())], [], tmp_path / "file")
        fermion.read_table(path)
        assert len(projection._known) <= projection.FILES_KNOWN_MAX
    wide = pa.table({f"column {number}": [1] for number in range(5_000)})
    fermion.write_table(wide, tmp_path / "wide")
    with fermion.open(tmp_path / "wide") as file:
        assert file.read(["column 7"])["column 7"].to_pylist() == [1]
        assert file.index.layout is None


def test_a_result_has_the_metadata_of_its_own_file(tmp_path: Path) -> None:
    """Of files that differ in nothing else, read in turns; few schemas are remembered."""
    for number in [*range(2 * projection.FILES_KNOWN_MAX), 0, 1, 0]:
        metadata = {"number": str(number)} if number % 3 else None
        schema = pa.schema(FIELDS, metadata=metadata)
        path = tmp_path / str(number)
        if not path.exists():
            fermion.write_table(pa.Table.from_pylist(ROWS[:2], schema=schema), path)
        found = fermion.read_table(path, columns=["b", "a"])
        wanted = pa.schema([FIELDS[1], FIELDS[0]], metadata=metadata)
        assert found.schema.equals(wanted, check_metadata=True)
        assert len(projection._schemas) <= projection.FILES_KNOWN_MAX
        assert len(file_index._schema_metadata) <= file_index.LAYOUTS_KNOWN_MAX


def test_a_result_of_several_stripes_has_all_rows(tmp_path: Path) -> None:
    """The table of one stripe is known without looking at it as an array; others are not."""
    table = pa.table({"a": range(50)})
    for stripes, rows in ((1, 50), (5, 10)):
        path = tmp_path / str(stripes)
        fermion.write_table(table, path, stripe_rows=rows)
        with fermion.open(path) as file:
            assert file.stripe_rows == (rows,) * stripes
            assert file.index.stripe_rows.dtype == "int64"
            assert file.read() == table


@pytest.mark.parametrize("count", [1, 31, 32, 33, 70])
def test_few_and_many_columns_are_told_apart_alike(tmp_path: Path, count: int) -> None:
    """Columns of nulls, of text, of numbers, on both sides of the number that is few."""
    kinds = [pa.nulls(5, pa.int32()), pa.array(list("abcde")), pa.array([1.5, None, 2, 3, 4])]
    table = pa.table({f"c{at}": kinds[at % 3] for at in range(count)})
    fermion.write_table(table, tmp_path / "file")
    with fermion.open(tmp_path / "file") as file:
        assert file.read() == table
        assert file.read(rows=(1, 3)) == table.slice(1, 2)

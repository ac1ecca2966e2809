"""Rows that an engine has found: `Table.commit_found`."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from fermion.errors import InvalidArgumentError
from fermion_table import CommitConflict, Table
from fermion_table.engine import FoundRows
from fermion_table.planning.filters import table_filter

SCHEMA = pa.schema([("a", pa.int64())])


@pytest.fixture
def table(tmp_path):
    """Rows 0 to 2 and 3 to 9, each of its own value."""
    made = Table.create(tmp_path / "t", SCHEMA)
    made.append({"a": [0, 1, 2]})
    made.append({"a": [*range(3, 10)]})
    return made


def found(table: Table, gone: list[int], filter: object = True, **others) -> FoundRows:
    chosen = table_filter(filter, table.schema, where="test")
    return FoundRows(
        base=table.snapshot, action="merge", filters=(chosen,), gone=BitMap64(gone), **others
    )


def written(table: Table, *values: int) -> list:
    with table.writer() as writer:
        writer.write(pa.table({"a": values}))
        return writer.prepare_commit()


def values(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["a"].to_pylist())


def test_rows_go_and_files_come_in_one_snapshot(table):
    """Again from the snapshot before: rows that are gone already are an error."""
    first = found(table, [1, 4, 5, 6, 7, 8])
    commit = table.commit_found(first, written(table, 10))
    assert (commit.id, commit.kind, commit.message) == (3, "upsert", "merge")
    assert values(table) == [0, 2, 3, 9, 10]
    assert table.snapshot.deltas.files_added == 1  # nothing is rewritten here
    with pytest.raises(InvalidArgumentError, match="1 rows that are to be deleted are not in"):
        table.commit_found(found(table, [1, 2]), [])
    table.commit_found(found(table, [0, 2], kind="delete"))
    assert table.snapshot.kind == "delete"
    assert table.commit_found(found(table, [])).id == 4


@pytest.mark.parametrize(
    ("change", "follows"),
    [
        (lambda table: table.append({"a": [4]}), False),
        (lambda table: table.append({"a": [40]}), True),
        (lambda table: table.delete("a = 3"), False),
        (lambda table: table.delete("a = 0"), True),
        (lambda table: table.compact(), False),
    ],
)
def test_another_commit_comes_first(table, change, follows):
    """It matters where it changed the same file, or added rows that would have been read."""
    rows, messages = found(table, [4], "a < 10"), written(table, 11)
    change(Table.open(table.location))
    if follows:
        assert table.commit_found(rows, messages).id == 4
        assert 4 not in values(table)
        assert 11 in values(table)
        return
    with pytest.raises(CommitConflict, match="run the statement again"):
        table.commit_found(rows, messages)
    assert not table.store.exists(messages[0].entries[0].path)
    assert table.refresh().id == 3


def test_files_that_decided_something_must_stay(table):
    """A row that the merge found there, and left as it is, must be there at the commit."""
    files = frozenset(entry.file for entry in table.scan(filter="a = 0").entries[0])
    rows, messages = found(table, [4], "a < 0", relied_on=files), written(table, 11)
    Table.open(table.location).delete("a = 0")
    with pytest.raises(CommitConflict):
        table.commit_found(rows, messages)


def test_rows_of_batches_do_not_move(table):
    """They can be deleted."""
    table.append_batch(7, {"a": [20, 21]})
    with pytest.raises(InvalidArgumentError, match="was written in batches"):
        table.commit_found(found(table, [10], moved=BitMap64([10])), written(table, 30))
    table.commit_found(found(table, [10]))
    assert values(table)[-2:] == [9, 21]


def test_wrong_arguments_are_named(table):
    for arguments, said in (((1,), "rows: .*FoundRows"), ((found(table, []), [1]), "messages")):
        with pytest.raises(TypeError, match=said):
            table.commit_found(*arguments)

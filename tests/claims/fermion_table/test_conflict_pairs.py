"""Every pair of the conflict matrix with real rows: mine loses the race for the slot to theirs.

Whatever the pair, the rows must be those of theirs followed by mine, or mine must fail and leave
those of theirs alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table
from fermion_table.errors import CommitConflict
from fermion_table.operations.draft import Draft
from fermion_table.storage.paths import snapshot_id_of
from fermion_table.storage.store import AtomicStore
from tests.kit.stores import WrappedStore

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
Rows = list[dict[str, Any]]


def rows(*pairs: tuple[str, int]) -> Rows:
    return [{"k": k, "v": v} for k, v in pairs]


def data(listed: Rows) -> pa.Table:
    return pa.Table.from_pylist(listed, schema=SCHEMA)


FIRST = [rows(("a", 1), ("b", 2)), rows(("a", 3), ("a", 13), ("b", 4)), rows(("b", 5), ("b", 15))]
NEW = rows(("a", 3), ("c", 50))


class RacingStore(WrappedStore):
    """Another writer commits right before this one creates its first slot."""

    def __init__(self, inner: AtomicStore, between: Callable[[], object]) -> None:
        super().__init__(inner)
        self.between: Callable[[], object] | None = between
        self.tries = 0

    def call(self, operation: str, *arguments: Any) -> Any:
        if operation == "create_if_absent" and snapshot_id_of(arguments[0].rsplit("/")[-1]):
            self.tries += 1
            between, self.between = self.between, None
            if between is not None:
                between()
        return super().call(operation, *arguments)


def in_range(row: dict[str, Any]) -> bool:
    return row["v"] is not None and 3 <= row["v"] < 10


def changed(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "v": row["v"] + 100} if row["v"] in (3, 5) else row


OPERATIONS: dict[str, tuple[Callable[[Table], Any], Callable[[Rows], Rows]]] = {
    "append": (lambda t: t.append(data(NEW)), lambda model: model + NEW),
    "overwrite": (lambda t: t.overwrite(data(NEW)), lambda model: NEW),
    "overwrite by filter": (
        lambda t: t.overwrite(data(rows(("z", 0))), filter="v >= 3 AND v < 10"),
        lambda model: [row for row in model if not in_range(row)] + rows(("z", 0)),
    ),
    "overwrite dynamically": (
        lambda t: t.overwrite(data(rows(("a", 7))), dynamic=True),
        lambda model: [row for row in model if row["k"] != "a"] + rows(("a", 7)),
    ),
    "delete": (
        lambda t: t.delete("v >= 3 AND v < 10"),
        lambda model: [row for row in model if not in_range(row)],
    ),
    "delete a partition": (
        lambda t: t.delete("k = 'a'"),
        lambda model: [row for row in model if row["k"] != "a"],
    ),
    "update": (
        lambda t: t.update("v = 3 OR v = 5", {"v": pc.field("v") + 100}),
        lambda model: [changed(row) for row in model],
    ),
    "transaction": (
        lambda t: delete_and_append(t),
        lambda model: [row for row in model if row["v"] != 3] + rows(("d", 3)),
    ),
    "merge": (
        lambda t: merge(t).when_matched_update({"k": "source.k"}).execute(),
        lambda model: [merged(row) for row in model] + missing(model),
    ),
    "insert what is new": (lambda t: merge(t).execute(), lambda model: model + missing(model)),
    "keep what is merged": (
        lambda t: merge(t).when_not_matched_by_source_delete("target.v < 15").execute(),
        lambda model: [row for row in model if row["v"] >= 15 or is_merged(row)] + missing(model),
    ),
    "compact": (lambda t: t.compact(), lambda model: model),
    "schema": (lambda t: t.add_columns({"c": pa.int8()}), lambda model: model),
    "restore": (
        lambda t: t.restore(1),
        lambda model: FIRST[0],
    ),
}


MERGED = rows(("q", 3), ("b", 5), ("q", 7), ("q", 50))


def merge(table: Table) -> Any:
    return table.merge(data(MERGED), on=["v"]).when_not_matched_insert()


def merged(row: dict[str, Any]) -> dict[str, Any]:
    return next((each for each in MERGED if each["v"] == row["v"]), row)


def is_merged(row: dict[str, Any]) -> bool:
    return any(each["v"] == row["v"] for each in MERGED)


def missing(model: Rows) -> Rows:
    known = {row["v"] for row in model}
    return [row for row in MERGED if row["v"] not in known]


def delete_and_append(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.delete("v = 3")
        transaction.append(data(rows(("d", 3))))


def first_table(path) -> Table:
    table = Table.create(path, SCHEMA, partition_by="k", durability="fast")
    for part in FIRST:
        table.append(data(part))
    return table


def found_rows(table: Table) -> list[tuple]:
    found = table.scan(columns=["k", "v"]).to_arrow().to_pylist()
    return sorted_rows(found)


def sorted_rows(listed: Rows) -> list[tuple]:
    return sorted(((row["k"], row["v"]) for row in listed), key=repr)


def check_files(table: Table) -> None:
    """Nothing is broken, and every file stored belongs to some snapshot."""
    report = table.verify()
    assert report.ok, report
    known = set()
    for snapshot in table.snapshots():
        for entry in table.scan(snapshot_id=snapshot.id).entries[0]:
            known.add(entry.path)
            if entry.deletion_vector is not None:
                known.add(entry.deletion_vector.path)
    stored = {item.path for folder in ("data", "deletion") for item in table.store.list(folder)}
    assert stored == known


def race(path, mine: Callable[[Table], Any], theirs: Callable[[Table], Any]) -> RacingStore:
    """Let mine lose its first try to theirs."""
    other = Table.open(path, durability="fast")
    store = RacingStore(other.store, lambda: theirs(other))
    mine(Table(store, other.snapshot))
    return store


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> Path:
    """A first table, to be copied."""
    path = tmp_path_factory.mktemp("first") / "table"
    first_table(path)
    return path


@pytest.mark.parametrize("theirs", OPERATIONS)
@pytest.mark.parametrize("mine", OPERATIONS)
def test_mine_follows_theirs(first, table_path, mine, theirs):
    """Compactions that yield change nothing; both adding the same column is tested below."""
    shutil.copytree(first, table_path)
    act, model_mine = OPERATIONS[mine]
    other, model_theirs = OPERATIONS[theirs]
    base = [row for part in FIRST for row in part]
    if mine == theirs == "schema":
        act = lambda t: t.add_columns({"d": pa.int8()})  # noqa: E731
    store = race(table_path, act, other)
    table = Table.open(table_path)
    assert found_rows(table) == sorted_rows(model_mine(model_theirs(base)))
    assert store.tries >= 1
    assert store.between is None
    check_files(table)


def test_an_append_fails_when_its_nulls_are_not_allowed_any_more(table_path):
    first_table(table_path)
    with pytest.raises(CommitConflict, match="NOT NULL"):
        race(
            table_path,
            lambda t: t.append(data([{"k": None, "v": 1}])),
            lambda t: t.alter_column("v", nullable=False) and t.alter_column("k", nullable=False),
        )
    table = Table.open(table_path)
    assert found_rows(table) == sorted_rows([row for part in FIRST for row in part])
    check_files(table)


def test_not_null_fails_when_a_null_was_appended_meanwhile(table_path):
    first_table(table_path)
    with pytest.raises((CommitConflict, InvalidArgumentError)):
        race(
            table_path,
            lambda t: t.alter_column("k", nullable=False),
            lambda t: t.append(data([{"k": None, "v": 1}])),
        )
    assert Table.open(table_path).schema.find("k").nullable


def test_the_same_name_added_twice_fails(table_path):
    first_table(table_path)
    with pytest.raises(InvalidArgumentError, match="taken"):
        race(
            table_path,
            lambda t: t.add_columns({"c": pa.int8()}),
            lambda t: t.add_columns({"c": pa.string()}),
        )


def test_a_delete_by_a_column_that_was_renamed_fails_and_leaves_no_file(table_path):
    first_table(table_path)
    with pytest.raises(ColumnNotFoundError):
        race(table_path, lambda t: t.delete("v = 3"), lambda t: t.rename_column("v", "w"))
    table = Table.open(table_path)
    assert table.scan().count() == 7
    check_files(table)


def test_a_delete_of_other_files_is_published_without_being_made_again(table_path, monkeypatch):
    """Counts how often rows are looked for."""
    first_table(table_path)
    looked = []
    match = Draft.match
    monkeypatch.setattr(Draft, "match", lambda *a: looked.append(1) or match(*a))
    race(table_path, lambda t: t.delete("v = 1"), lambda t: t.append(data(rows(("q", 70)))))
    assert len(looked) == 1
    looked.clear()
    race(table_path, lambda t: t.delete("v = 4"), lambda t: t.delete("v = 15"))
    assert len(looked) == 2  # theirs and mine, each once


def test_a_merge_is_made_again_only_for_rows_that_may_have_its_keys(table_path, monkeypatch):
    """Counts how often rows are looked for: keys beside each other, then the same key."""
    first_table(table_path)
    looked = []
    match = Draft.match
    monkeypatch.setattr(Draft, "match", lambda *a: looked.append(1) or match(*a))

    def insert(number: int) -> Callable[[Table], Any]:
        source = data(rows(("q", number)))
        return lambda t: t.merge(source, ["v"]).when_not_matched_insert().execute()

    race(table_path, insert(70), lambda t: t.append(data(rows(("q", 71)))))
    assert len(looked) == 1
    looked.clear()
    race(table_path, insert(72), insert(72))
    assert len(looked) == 3  # theirs once, mine twice
    assert Table.open(table_path).scan(filter="v = 72").count() == 1


def test_many_writers_insert_each_key_once(table_path):
    """Eight threads merge the same keys; each is inserted by one, and counted by all."""
    Table.create(table_path, SCHEMA, durability="fast")

    def work(number: int) -> None:
        table = Table.open(table_path, durability="fast")
        source = data([{"k": "n", "v": n % 12} for n in range(number, number + 6)])
        count = {"v": pc.field("target", "v"), "k": pc.binary_join_element_wise(
            pc.field("target", "k"), pc.field("source", "k"), "")}  # fmt: skip
        table.merge(source, ["v"]).when_matched_update(count).when_not_matched_insert().execute()

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(work, range(8)))
    table = Table.open(table_path)
    expected = [n % 12 for number in range(8) for n in range(number, number + 6)]
    assert found_rows(table) == sorted_rows(
        [{"k": "n" * expected.count(n), "v": n} for n in range(12) if n in expected]
    )
    check_files(table)


def test_deletes_in_the_same_file_both_hold(table_path):
    table = Table.create(table_path, SCHEMA, durability="fast")
    table.append(data([{"k": "a", "v": n} for n in range(20)]))
    race(table_path, lambda t: t.delete("v = 3"), lambda t: t.delete("v = 4 OR v = 3"))
    table.refresh()
    left = table.scan().to_arrow().column("v").to_pylist()
    assert left == [n for n in range(20) if n not in (3, 4)]
    assert table.snapshot.id == 2  # nothing was left for mine


def test_a_compaction_drops_only_the_groups_that_a_delete_touched(table_path):
    first_table(table_path)
    results = []
    race(table_path, lambda t: results.append(t.compact()), lambda t: t.delete("v = 3"))
    (result,) = results
    assert (result.groups, result.groups_dropped) == (2, 1)
    table = Table.open(table_path)
    deleted = [entry for entry in table.scan().entries[0] if entry.deletion_vector is not None]
    assert [entry.partition for entry in deleted] == [("a",)]
    check_files(table)


def test_a_delete_survives_a_compaction_that_came_first(table_path):
    first_table(table_path)
    race(table_path, lambda t: t.delete("v = 3 OR v = 5"), lambda t: t.compact())
    table = Table.open(table_path)
    assert [snapshot.kind for snapshot in table.snapshots()[-2:]] == ["compact", "delete"]
    assert table.scan(filter="v = 3 OR v = 5").count() == 0
    check_files(table)


def test_many_writers_delete_and_append_at_once(table_path):
    """Eight threads, each with its own rows; all of them end up as if alone."""
    Table.create(table_path, SCHEMA, durability="fast").append(
        data([{"k": str(n % 4), "v": n} for n in range(80)])
    )

    def work(number: int) -> None:
        table = Table.open(table_path, durability="fast")
        table.append(data(rows((str(number), 1000 + number))))
        table.delete(f"v >= {10 * number} AND v < {10 * number + 5}")
        table.update(f"v = {1000 + number}", {"v": 2000 + number})

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(work, range(8)))
    table = Table.open(table_path)
    expected = [n for n in range(80) if n % 10 >= 5] + [2000 + n for n in range(8)]
    assert sorted(table.scan().to_arrow().column("v").to_pylist()) == expected
    check_files(table)

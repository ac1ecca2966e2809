"""A merge engine of one file takes part in everything that tables with a primary key can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.merge_engines.registry import ENGINES
from tests.kit.greatest import Greatest

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("s", pa.string())])
FIRST = {"id": [1, 2, 3], "n": [5, 1, 7], "s": ["a", "b", "c"]}
SECOND = {"id": [1, 2, 4], "n": [3, 9, 2], "s": ["z", None, "d"]}
MERGED = [
    {"id": 1, "n": 5, "s": "z"},
    {"id": 2, "n": 9, "s": "b"},
    {"id": 3, "n": 7, "s": "c"},
    {"id": 4, "n": 2, "s": "d"},
]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "greatest", Greatest())


def made(path, **properties: str) -> Table:
    """A table of the engine with two runs that overlap."""
    settings = {
        "merge_engine": "greatest",
        "greatest.remove_record_on_delete": "true",
        "bucket": "2",
        **properties,
    }
    table = Table.create(path, SCHEMA, primary_key=["id"], properties=settings)
    table.upsert(FIRST)
    table.upsert(SECOND)
    return table


def rows(table: Table) -> list[dict[str, object]]:
    """The rows of a table by their key."""
    return table.scan().to_arrow().sort_by("id").to_pylist()


def test_an_engine_that_is_not_registered_is_refused(table_path, monkeypatch):
    monkeypatch.delitem(ENGINES, "greatest")
    with pytest.raises(InvalidArgumentError, match="merge_engine='greatest': expected one of"):
        made(table_path)


def test_writer_and_reader_fold_rows_by_it(table_path):
    table = made(table_path)
    assert rows(table) == MERGED
    assert table.scan(filter="n > 4").count() == 3
    assert rows(Table.open(table_path)) == MERGED


def test_a_batch_with_a_key_twice_is_folded_when_it_is_written(table_path):
    table = made(table_path)
    table.upsert({"id": [9, 9], "n": [1, 8], "s": ["y", "x"]})
    assert rows(table)[-1] == {"id": 9, "n": 8, "s": "y"}


def test_compaction_keeps_what_scans_show(table_path):
    table = made(table_path)
    table.delete_keys([3])
    table.upsert({"id": [3], "n": [1], "s": ["new"]})
    expected = [*MERGED[:2], {"id": 3, "n": 1, "s": "new"}, MERGED[3]]
    assert rows(table) == expected
    table.compact(full=True)
    assert rows(table) == expected
    assert table.verify(data=True).ok


def test_lookups_fold_the_rows_of_their_keys(table_path):
    table = made(table_path)
    assert table.lookup([4, 1, 77]).to_pylist() == [MERGED[3], MERGED[0]]


@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_the_change_feed_tells_of_merged_rows(table_path, producer):
    table = made(table_path, changelog_producer=producer)
    start = table.snapshot.id
    table.upsert({"id": [1, 5], "n": [6, 0], "s": ["b", "e"]})
    table.compact(full=True)
    changes = table.scan_changes(start).to_arrow().to_pylist()
    told = {(row["_change_type"], row["id"], row["n"], row["s"]) for row in changes}
    assert told == {
        ("update_preimage", 1, 5, "z"),
        ("update_postimage", 1, 6, "z"),
        ("insert", 5, 0, "e"),
    }


def test_merge_update_and_delete_write_what_it_makes_of_rows(table_path):
    """An update is a deletion and a new row, as the engine does not replace rows."""
    table = made(table_path)
    done = (
        table.merge({"id": [1, 6], "n": [1, 6], "s": ["m", "n"]}, on=["id"])
        .when_matched_update(set={"n": "source.n"})
        .when_not_matched_insert()
        .execute()
    )
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    table.delete("id = 4")
    table.update("id = 2", {"n": 0})
    expected = [
        {"id": 1, "n": 1, "s": "z"},
        {"id": 2, "n": 0, "s": "b"},
        MERGED[2],
        {"id": 6, "n": 6, "s": "n"},
    ]
    assert rows(table) == expected
    table.compact(full=True)
    assert rows(table) == expected


def test_operations_that_remove_rows_are_refused_without_its_setting(table_path):
    """The message names the property of the new engine."""
    properties = {"greatest.remove_record_on_delete": "false"}
    table = made(table_path, **properties)
    with pytest.raises(InvalidArgumentError, match=r"set greatest\.remove_record_on_delete=true"):
        table.delete("id = 1")
    assert rows(table) == MERGED


PROPERTIES = {
    "deduplicate": {},
    "partial_update": {"partial_update.remove_record_on_delete": "true"},
    "aggregation": {
        "aggregation.remove_record_on_delete": "true",
        "fields.n.aggregate_function": "sum",
    },
    "first_row": {},
}
"""Of tables with the engines of the project."""


def state(table: Table, start: int) -> dict[str, Any]:
    """All that a table tells of its rows, and how its files lie."""
    changes = table.scan_changes(start).to_arrow().drop_columns("_commit_timestamp").to_pylist()
    return {
        "rows": rows(table),
        "filtered": table.scan(columns=["s"], filter="n > 4").to_arrow().sort_by("s").to_pylist(),
        "count": table.scan().count(),
        "found": table.lookup([4, 1, 77]).to_pylist(),
        "changes": sorted(map(repr, changes)),
        "levels": sorted((entry.level, entry.rows) for entry in table.scan().entries[0]),
    }


def history_of(path: Path, engine: str, properties: dict[str, str]) -> list[Any]:
    """What a table says after each operation; an operation that is refused says why."""
    names = {key.replace("ENGINE", engine): value for key, value in properties.items()}
    settings = {"merge_engine": engine, "bucket": "2", **names}
    table = Table.create(path, SCHEMA, primary_key=["id"], properties=settings, durability="fast")
    table.upsert(FIRST)
    table.upsert(SECOND)
    start = table.snapshot.id
    clauses = {"id": [1, 6], "n": [1, 6], "s": ["m", "n"]}
    found: list[Any] = []
    for operation in (
        lambda: table.upsert({"id": [2, 2, 7], "n": [8, 1, 7], "s": ["p", "q", None]}),
        lambda: table.compact(),
        lambda: (
            table.merge(clauses, on=["id"])
            .when_matched_update(set={"n": "source.n"})
            .when_not_matched_insert()
            .execute()
        ),
        lambda: table.update("id = 2", {"n": 0}),
        lambda: table.delete("id = 4"),
        lambda: table.delete_keys([3]),
        lambda: table.upsert({"id": [3, 8], "n": [1, 1], "s": ["t", "u"]}),
        lambda: table.overwrite({"id": [9], "n": [9], "s": ["v"]}, filter="id = 7"),
        lambda: table.compact(full=True),
    ):
        try:
            operation()
        except InvalidArgumentError as error:
            message = str(error)
            for each in (engine, *PROPERTIES):  # an engine's own file may spell its name
                message = message.replace(each, "ENGINE")
            found.append(message)
        found.append(state(table, start))
    assert table.verify(data=True).ok
    return found


@pytest.mark.long
@pytest.mark.parametrize(("producer", "vectors"), [("none", "false"), ("lookup", "true")])
@pytest.mark.parametrize("name", PROPERTIES)
def test_an_engine_under_another_name_does_the_same(
    name: str, producer: str, vectors: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that acts on the name of an engine would show in rows, changes, refusals or files."""
    renamed = type("Renamed", (type(ENGINES[name]),), {"name": "renamed"})()
    monkeypatch.setitem(ENGINES, "renamed", renamed)
    properties = {key.replace(name, "ENGINE"): value for key, value in PROPERTIES[name].items()}
    properties |= {"changelog_producer": producer, "deletion_vectors.enabled": vectors}
    histories = [history_of(tmp_path / engine, engine, properties) for engine in (name, "renamed")]
    assert histories[0] == histories[1]
    assert len(histories[0][-1]["rows"]) > 3

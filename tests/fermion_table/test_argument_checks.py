"""Values of the wrong type are refused by name, and nothing is published that can't be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from fermion_table import Table, UnreadableMetadata
from fermion_table.commit.commit import commit
from fermion_table.commit.request import CommitMetadata, CommitRequest, NewSchema
from fermion_table.metadata.deletion_vector import write_vectors
from fermion_table.metadata.manifest import FieldStatistics
from fermion_table.metadata.manifest_store import MetadataWriter
from fermion_table.metadata.pointers import write_latest
from fermion_table.metadata.references import create_branch, create_tag
from fermion_table.schema.schema import encode_schema
from fermion_table.writing import data_files
from tests.kit.stores import MemoryStore, made_up_entry

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROWS = {"id": [1, 2], "name": ["a", "b"]}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    table.append(ROWS)
    return table


def objects(table: Table) -> dict[str, int]:
    return {item.path: item.size for item in table.store.list()}


Call = Callable[[Table, Any], Any]
TEXTS: dict[str, Call] = {
    "append message": lambda t, x: t.append(ROWS, message=x),
    "append commit_user": lambda t, x: t.append(ROWS, commit_user=x, commit_identifier=1),
    "append_batch message": lambda t, x: t.append_batch(1, ROWS, message=x),
    "append_batches message": lambda t, x: t.append_batches([(1, ROWS)], message=x),
    "commit message": lambda t, x: t.commit([], message=x),
    "overwrite message": lambda t, x: t.overwrite(ROWS, message=x),
    "delete message": lambda t, x: t.delete("id = 1", message=x),
    "update message": lambda t, x: t.update("id = 1", {"id": 3}, message=x),
    "transaction message": lambda t, x: t.transaction(message=x),
    "transaction commit_user": lambda t, x: t.transaction(commit_user=x, commit_identifier=1),
    "update_schema message": lambda t, x: t.update_schema(message=x),
    "restore message": lambda t, x: t.restore(0, message=x),
    "clone message": lambda t, x: t.clone(t.location + "-clone", message=x),
    "tags.create message": lambda t, x: t.tags.create("x", message=x),
    "branches.create message": lambda t, x: t.branches.create("x", message=x),
    "fast_forward message": lambda t, x: t.branches.fast_forward("x", message=x),
    "alter_column comment": lambda t, x: t.alter_column("id", comment=x),
    "add_column comment": lambda t, x: t.update_schema().add_column("c", pa.int8(), comment=x),
    "create message": lambda t, x: Table.create(t.location + "-other", SCHEMA, message=x),
}
NEEDED_TEXTS: dict[str, Call] = {
    "rename_column new": lambda t, x: t.rename_column("id", x),
    "drop_columns columns": lambda t, x: t.drop_columns([x]),
    "add_column path": lambda t, x: t.update_schema().add_column(x, pa.int8()),
    "tags.create name": lambda t, x: t.tags.create(x),
    "tags.delete name": lambda t, x: t.tags.delete(x),
    "branches.create name": lambda t, x: t.branches.create(x),
    "branches.delete name": lambda t, x: t.branches.delete(x),
    "fast_forward name": lambda t, x: t.branches.fast_forward(x),
    "open branch": lambda t, x: Table.open(t.location, branch=x),
    "set_properties updates": lambda t, x: t.set_properties({"to.keep": x}),
    "set_properties updates key": lambda t, x: t.set_properties({x: "keep"}),
    "set_properties remove": lambda t, x: t.set_properties({}, remove=[x]),
    "append properties": lambda t, x: t.append(ROWS, properties={"rows": x}),
    "append properties key": lambda t, x: t.append(ROWS, properties={x: "1"}),
    "overwrite properties": lambda t, x: t.overwrite(ROWS, properties={"rows": x}),
    "create properties": lambda t, x: Table.create(
        t.location + "-other", SCHEMA, properties={"a.b": x}
    ),
    "create sort_by": lambda t, x: Table.create(t.location + "-other", SCHEMA, sort_by=[x]),
    "create primary_key": lambda t, x: Table.create(t.location + "-other", SCHEMA, primary_key=[x]),
    "create partition_by": lambda t, x: Table.create(
        t.location + "-other", SCHEMA, partition_by=[x]
    ),
}
OTHERS: dict[str, tuple[Call, Any]] = {
    "properties": (lambda t, x: t.append(ROWS, properties=x), 5),
    "properties of a text": (lambda t, x: t.append(ROWS, properties=x), "a=b"),
    "commit_identifier": (lambda t, x: t.append(ROWS, commit_user="u", commit_identifier=x), 1.5),
    "commit_identifier true": (
        lambda t, x: t.append(ROWS, commit_user="u", commit_identifier=x),
        True,
    ),
    "updates": (lambda t, x: t.set_properties(x), 5),
    "remove": (lambda t, x: t.set_properties({}, remove=x), "keep"),
    "keep": (lambda t, x: t.tags.create("x", keep=x), 7),
    "nullable": (lambda t, x: t.alter_column("id", nullable=x), "no"),
    "type": (lambda t, x: t.alter_column("id", type=x), "int64"),
    "type of a new column": (lambda t, x: t.update_schema().add_column("c", x), "int64"),
    "schema": (lambda t, x: Table.create(t.location + "-other", x), {"id": "int64"}),
    "partition_by": (lambda t, x: Table.create(t.location + "-o", SCHEMA, partition_by=x), 5),
}


@pytest.mark.parametrize("what", [*TEXTS, *NEEDED_TEXTS])
def test_what_is_no_text_is_a_type_error_that_names_the_parameter(table: Table, what: str) -> None:
    """Nothing is written by the call, and the table opens as it was."""
    before, directory = objects(table), set(Path(table.location).parent.iterdir())
    call = {**TEXTS, **NEEDED_TEXTS}[what]
    for wrong in (5, 7.5, float("nan"), b"x", np.int64(3), True, ("x", 5)):
        with pytest.raises(TypeError, match=what.split()[1]):
            call(table, wrong)
    assert objects(table) == before
    assert set(Path(table.location).parent.iterdir()) == directory
    assert Table.open(table.location).snapshot == table.snapshot


@pytest.mark.parametrize("what", NEEDED_TEXTS)
def test_none_is_no_text_where_one_is_needed(table: Table, what: str) -> None:
    before = objects(table)
    with pytest.raises(TypeError, match=what.split()[1]):
        NEEDED_TEXTS[what](table, None)
    assert objects(table) == before


@pytest.mark.parametrize("what", OTHERS)
def test_other_arguments_of_a_wrong_type_are_refused_by_name(table: Table, what: str) -> None:
    before = objects(table)
    call, wrong = OTHERS[what]
    with pytest.raises(TypeError, match=what.split()[0]):
        call(table, wrong)
    assert objects(table) == before


@pytest.mark.parametrize("what", TEXTS)
def test_text_that_has_no_utf8_is_refused(table: Table, what: str) -> None:
    """A lone surrogate, as ``os.fsdecode`` makes them."""
    before = objects(table)
    with pytest.raises(ValueError, match=what.split()[1]):
        TEXTS[what](table, "\udcff")
    assert objects(table) == before


@pytest.mark.parametrize("identifier", [2**63, -(2**63) - 1, 2**200])
def test_an_identifier_of_more_than_64_bits_is_refused(table: Table, identifier: int) -> None:
    with pytest.raises(ValueError, match="commit_identifier"):
        table.append(ROWS, commit_user="u", commit_identifier=identifier)


def test_numpy_numbers_and_texts_are_what_they_hold(table: Table) -> None:
    """The stored snapshot has a plain number and text, and the pair is committed once."""
    user, number = np.str_("u"), np.int64(9)
    first = table.append(ROWS, commit_user=user, commit_identifier=number, message=np.str_("m"))
    assert (first.commit_user, first.commit_identifier, first.message) == ("u", 9, "m")
    assert table.append(ROWS, commit_user="u", commit_identifier=9).id == first.id
    assert Table.open(table.location).snapshot == first


# By construction: whatever reaches the place where metadata is written


def unchecked(**wrong: Any) -> CommitMetadata:
    """Commit metadata with values that its checks refuse."""
    metadata = CommitMetadata()
    for name, value in wrong.items():
        object.__setattr__(metadata, name, value)
    return metadata


def test_a_snapshot_that_no_reader_takes_is_not_created(table: Table) -> None:
    """Below the public calls: the commit, with values that they refuse."""
    before = objects(table)
    for wrong in (
        {"metadata": unchecked(message=5)},
        {"metadata": unchecked(commit_user=5, commit_identifier=1)},
        {"metadata": unchecked(commit_user="a", commit_identifier=1.5)},
        {"metadata": unchecked(properties={"rows": 1})},
        {"metadata": unchecked(message=object())},
        {"metadata": unchecked(message="\udcff")},
        {"reader_features": ("from the future",)},
        {"added": [made_up_entry("x", level="low")]},
        {"added": [made_up_entry("x", stats={1: FieldStatistics(2**70, None)})]},
        {"added": [made_up_entry("x", size=-1)]},
    ):
        request = CommitRequest(kind="append", base=table.snapshot, **wrong)
        with pytest.raises(UnreadableMetadata, match=r"snapshot/0+2\.json: not stored"):
            commit(table.store, request)
        assert objects(table) == before
    assert Table.open(table.location).snapshot == table.snapshot


def test_a_manifest_that_no_reader_takes_is_not_created() -> None:
    """Loose and packed."""
    store = MemoryStore()
    writer = MetadataWriter(store)
    loose = [made_up_entry("x", rows=-1)]
    packed = [made_up_entry(f"{n}", deletion_vector={"rows": "many"}) for n in range(600)]
    for entries in (loose, packed):
        with pytest.raises(UnreadableMetadata, match="manifest/"):
            writer.write_manifest(entries)
    assert not store.objects


def test_a_schema_that_no_reader_takes_is_not_created(table: Table) -> None:
    """Another field under the same id, a comment that is no text, a property that is none."""
    schema, before = table.schema, objects(table)
    twice = (*schema.fields, msgspec.structs.replace(schema.fields[0], name="again"))
    commented = (msgspec.structs.replace(schema.fields[0], comment=5),)
    for changes in ({"fields": twice}, {"fields": commented}, {"properties": {"keep": 7}}):
        broken = msgspec.structs.replace(schema, id=1, **changes)
        request = CommitRequest(
            kind="schema", schema=NewSchema(1, encode_schema(broken)), base=table.snapshot
        )
        with pytest.raises(UnreadableMetadata, match="schema/"):
            commit(table.store, request)
        assert objects(table) == before


@pytest.mark.parametrize("create", [create_tag, create_branch])
def test_a_tag_or_branch_that_no_reader_takes_is_not_created(
    table: Table, create: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its file nor the pending one, even where nothing checks the message before."""
    before = objects(table)
    monkeypatch.setattr(
        "fermion_table.metadata.references.check_optional_text", lambda value, parameter: value
    )
    with pytest.raises(UnreadableMetadata, match="not stored"):
        create(table.store, "x", table.snapshot, message=7)
    assert objects(table) == before


def test_a_deletion_vector_that_no_reader_takes_is_not_created() -> None:
    """It marks a row that its file does not have."""
    store = MemoryStore()
    with pytest.raises(UnreadableMetadata, match="rows below 10"):
        write_vectors(store, {"a": BitMap64([3]), "b": BitMap64([10])}, {"a": 10, "b": 10})
    assert not store.objects


def test_a_hint_that_no_reader_takes_is_not_written() -> None:
    store = MemoryStore()
    with pytest.raises(UnreadableMetadata, match="LATEST"):
        write_latest(store, 2**63)
    assert not store.objects


def test_an_append_that_no_reader_would_take_leaves_no_data_file(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that are wrong by a bug of the writer's: its files go with the failed commit."""
    before = objects(table)
    make = data_files.EntryMaker.entry

    def broken(self: Any, *arguments: Any, **named: Any) -> Any:
        return msgspec.structs.replace(make(self, *arguments, **named), rows=-1)

    monkeypatch.setattr(data_files.EntryMaker, "entry", broken)
    with pytest.raises(UnreadableMetadata):
        table.append(ROWS)
    with pytest.raises(UnreadableMetadata), table.transaction() as transaction:
        transaction.append(ROWS)
    assert objects(table) == before

"""The conflict matrix: one verdict for each pair of operations."""

from __future__ import annotations

from typing import Any

import pytest

from fermion_table.commit.conflict import (
    Fail,
    Mine,
    Ok,
    Redo,
    Theirs,
    Verdict,
    conflict,
    needs_files,
)
from fermion_table.metadata.manifest import Entry
from fermion_table.schema.schema import SchemaReference
from tests.kit.stores import made_up_entry

HERE: frozenset[tuple[Any, ...]] = frozenset({("here",)})
THERE: frozenset[tuple[Any, ...]] = frozenset({("there",)})
SCHEMA = SchemaReference(id=4, path="schema/4-a.json", hash="ab", size=1)

ADDED_HERE = made_up_entry("new-here", partition=("here",))
ADDED_THERE = made_up_entry("new-there", partition=("there",))
REPLACING = ("overwrite", "restore")
DELETING = ("delete", "upsert")
KINDS = ("append", *REPLACING, *DELETING, "compact", "schema")


def mine(kind: Any, **fields: Any) -> Mine:
    """A commit that reads partition `here` and removes `mine` there, as its kind allows."""
    defaults: dict[str, Any] = {"kind": kind}
    if kind in (*REPLACING, *DELETING):
        defaults |= {"scope": HERE, "removed": frozenset({"mine"})}
    if kind == "compact":
        defaults |= {"groups": [frozenset({"mine", "mine-2"}), frozenset({"other", "other-2"})]}
    if kind == "schema":
        defaults |= {"changes_schema": True}
    return Mine(**defaults | fields)


def theirs(kind: Any, *, same_partition: bool = True, same_file: bool = False) -> Theirs:
    """A commit in the same partition or another; it removes `mine` or a file of its own."""
    entry = ADDED_HERE if same_partition else ADDED_THERE
    if kind == "schema":
        return Theirs(snapshot_id=9, kind=kind, partitions=frozenset(), schema=SCHEMA)
    removed = frozenset() if kind == "append" else frozenset({"mine" if same_file else "theirs"})
    return Theirs(
        snapshot_id=9,
        kind=kind,
        partitions=HERE if same_partition else THERE,
        added=[entry],
        removed=removed,
    )


def readable(schema: SchemaReference) -> str | None:
    assert schema == SCHEMA
    return None


def unreadable(schema: SchemaReference) -> str | None:
    return "column 'a' became NOT NULL"


def is_here(entry: Entry) -> bool:
    return entry.partition == ("here",)


@pytest.mark.parametrize("kind", [*REPLACING, *DELETING, "append", "compact"])
@pytest.mark.parametrize("same_partition", [True, False])
def test_a_blind_append_follows_everything_but_schemas(kind: str, same_partition: bool) -> None:
    assert conflict(mine("append"), theirs(kind, same_partition=same_partition)) == Ok()
    assert not needs_files(mine("append"))


def test_an_append_follows_a_schema_its_files_can_be_read_with() -> None:
    assert conflict(mine("append", accepts_schema=readable), theirs("schema")) == Ok()
    assert conflict(mine("append", accepts_schema=unreadable), theirs("schema")) == Fail(
        "column 'a' became NOT NULL"
    )
    assert isinstance(conflict(mine("append"), theirs("schema")), Redo)


def test_an_append_that_looked_at_files_is_redone_for_new_ones_that_matter() -> None:
    careful = mine("append", depends_on=is_here)
    assert needs_files(careful)
    assert isinstance(conflict(careful, theirs("append")), Redo)
    assert conflict(careful, theirs("append", same_partition=False)) == Ok()


@pytest.mark.parametrize("kind", ["append", *REPLACING, *DELETING, "compact"])
@pytest.mark.parametrize("my_kind", REPLACING)
def test_an_overwrite_is_redone_where_partitions_overlap(my_kind: str, kind: str) -> None:
    assert isinstance(conflict(mine(my_kind), theirs(kind)), Redo)
    assert conflict(mine(my_kind), theirs(kind, same_partition=False)) == Ok()
    everything = mine(my_kind, scope=None)
    assert isinstance(conflict(everything, theirs(kind, same_partition=False)), Redo)


def test_an_overwrite_by_filter_follows_appends_that_do_not_match() -> None:
    by_filter = mine("overwrite", scope=None, depends_on=is_here)
    assert isinstance(conflict(by_filter, theirs("append")), Redo)
    assert conflict(by_filter, theirs("append", same_partition=False)) == Ok()


def test_partitions_too_many_to_name_overlap_with_all() -> None:
    many = Theirs(snapshot_id=9, kind="append", partitions=None, added=[ADDED_THERE])
    assert isinstance(conflict(mine("overwrite"), many), Redo)


@pytest.mark.parametrize("my_kind", REPLACING)
@pytest.mark.parametrize("accepts", [readable, unreadable, None])
def test_an_overwrite_is_redone_after_a_schema(my_kind: str, accepts: Any) -> None:
    assert isinstance(conflict(mine(my_kind, accepts_schema=accepts), theirs("schema")), Redo)


@pytest.mark.parametrize("my_kind", DELETING)
@pytest.mark.parametrize("kind", ["append", "upsert"])
def test_a_delete_is_redone_if_a_new_file_may_match(my_kind: str, kind: str) -> None:
    assert isinstance(conflict(mine(my_kind), theirs(kind)), Redo)
    assert conflict(mine(my_kind), theirs(kind, same_partition=False)) == Ok()
    assert conflict(mine(my_kind, depends_on=lambda entry: False), theirs(kind)) == Ok()
    assert isinstance(
        conflict(mine(my_kind, depends_on=lambda entry: True), theirs(kind, same_partition=False)),
        Redo,
    )


@pytest.mark.parametrize("my_kind", DELETING)
@pytest.mark.parametrize("kind", REPLACING)
def test_a_delete_is_redone_after_an_overwrite_of_its_partition(my_kind: str, kind: str) -> None:
    assert isinstance(conflict(mine(my_kind), theirs(kind)), Redo)
    assert conflict(mine(my_kind), theirs(kind, same_partition=False)) == Ok()


@pytest.mark.parametrize("my_kind", DELETING)
@pytest.mark.parametrize("kind", [*DELETING, *REPLACING, "compact"])
def test_a_delete_is_redone_if_the_same_file_was_changed(my_kind: str, kind: str) -> None:
    verdict = conflict(mine(my_kind), theirs(kind, same_partition=False, same_file=True))
    assert isinstance(verdict, Redo)
    assert verdict.files == ("mine",)


@pytest.mark.parametrize("my_kind", DELETING)
@pytest.mark.parametrize("kind", ["delete", "compact"])
def test_a_delete_follows_deletes_and_compactions_of_other_files(my_kind: str, kind: str) -> None:
    assert conflict(mine(my_kind), theirs(kind)) == Ok()


@pytest.mark.parametrize("my_kind", DELETING)
def test_a_delete_is_redone_if_its_columns_changed(my_kind: str) -> None:
    assert conflict(mine(my_kind, accepts_schema=readable), theirs("schema")) == Ok()
    assert isinstance(conflict(mine(my_kind, accepts_schema=unreadable), theirs("schema")), Redo)
    assert isinstance(conflict(mine(my_kind), theirs("schema")), Redo)


@pytest.mark.parametrize("kind", [*REPLACING, *DELETING, "compact"])
def test_a_compaction_drops_the_groups_that_lost_an_input(kind: str) -> None:
    assert conflict(mine("compact"), theirs(kind, same_file=True)) == Ok(frozenset({0}))
    assert conflict(mine("compact"), theirs(kind)) == Ok()


@pytest.mark.parametrize("kind", [*REPLACING, *DELETING, "compact"])
def test_a_compaction_without_groups_fails_if_it_lost_an_input(kind: str) -> None:
    whole = Mine(kind="compact", removed=frozenset({"mine"}))
    assert isinstance(conflict(whole, theirs(kind, same_file=True)), Fail)
    assert conflict(whole, theirs(kind)) == Ok()


@pytest.mark.parametrize("kind", ["append", "schema"])
def test_a_compaction_follows_appends_and_schemas(kind: str) -> None:
    assert conflict(mine("compact"), theirs(kind)) == Ok()


@pytest.mark.parametrize("kind", ["append", *REPLACING, *DELETING])
def test_a_schema_follows_everything_unless_it_looked_at_files(kind: str) -> None:
    assert conflict(mine("schema"), theirs(kind)) == Ok()
    not_null = mine("schema", depends_on=is_here)
    assert isinstance(conflict(not_null, theirs(kind)), Redo)
    assert conflict(not_null, theirs(kind, same_partition=False)) == Ok()


EXPIRED = Theirs(snapshot_id=9, kind="restore", is_known=False)


@pytest.mark.parametrize("my_kind", [*REPLACING, *DELETING])
def test_what_removes_files_is_redone_after_a_commit_that_has_expired(my_kind: str) -> None:
    assert isinstance(conflict(mine(my_kind, depends_on=lambda entry: False), EXPIRED), Redo)


def test_a_compaction_drops_all_groups_after_a_commit_that_has_expired() -> None:
    """It may have removed their files, or given them deletion vectors."""
    assert conflict(mine("compact"), EXPIRED) == Ok(frozenset({0, 1}))
    whole = Mine(kind="compact", removed=frozenset({"mine"}))
    assert isinstance(conflict(whole, EXPIRED), Fail)


@pytest.mark.parametrize("my_kind", ["append", "schema"])
def test_only_what_looked_at_files_is_redone_after_a_commit_that_has_expired(my_kind: str) -> None:
    assert conflict(mine(my_kind), EXPIRED) == Ok()
    assert isinstance(conflict(mine(my_kind, depends_on=is_here), EXPIRED), Redo)


def test_a_schema_follows_a_compaction_even_if_it_looked_at_files() -> None:
    assert conflict(mine("schema", depends_on=is_here), theirs("compact")) == Ok()


def test_a_schema_is_applied_again_after_a_schema() -> None:
    assert isinstance(conflict(mine("schema"), theirs("schema")), Redo)


def test_a_commit_of_files_and_a_schema_stands_in_both_rows_and_columns() -> None:
    merging = mine("append", changes_schema=True, accepts_schema=readable)
    assert conflict(merging, theirs("append")) == Ok()
    assert isinstance(conflict(merging, theirs("schema")), Redo)
    both = Theirs(snapshot_id=9, kind="append", partitions=HERE, added=[ADDED_HERE], schema=SCHEMA)
    assert conflict(mine("append", accepts_schema=readable), both) == Ok()
    assert isinstance(conflict(mine("append", accepts_schema=unreadable), both), Fail)
    assert isinstance(conflict(mine("delete", accepts_schema=readable), both), Redo)
    assert conflict(mine("compact"), both) == Ok()


@pytest.mark.parametrize("my_kind", KINDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("same_partition", [True, False])
@pytest.mark.parametrize("same_file", [True, False])
def test_every_pair_has_a_verdict_that_gives_its_reason(
    my_kind: str, kind: str, same_partition: bool, same_file: bool
) -> None:
    verdict: Verdict = conflict(
        mine(my_kind), theirs(kind, same_partition=same_partition, same_file=same_file)
    )
    if not isinstance(verdict, Ok):
        assert "snapshot 9" in verdict.reason or "schema is now 4" in verdict.reason


@pytest.mark.parametrize("my_kind", [*REPLACING, *DELETING])
@pytest.mark.parametrize("kind", KINDS)
def test_what_removes_files_never_follows_the_removal_of_the_same_file(
    my_kind: str, kind: str
) -> None:
    if kind not in ("append", "schema"):
        assert isinstance(conflict(mine(my_kind), theirs(kind, same_file=True)), Redo)

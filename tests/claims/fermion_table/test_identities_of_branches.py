"""A commit that a fast-forward brought to a branch's parent is found there when it is repeated."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from fermion_table import Table
from fermion_table.commit import identities

SCHEMA = pa.schema({"a": pa.int64()})


@pytest.fixture(autouse=True)
def forgets() -> None:
    """Nothing is known of tables of other tests."""
    identities._indexes.clear()


@pytest.fixture
def table(table_path) -> Table:
    return Table.create(table_path, SCHEMA, durability="fast")


def branch(table: Table, name: str, **of: str) -> Table:
    table.branches.create(name, **of)
    return Table.open(table.location, branch=name, durability="fast")


def append(table: Table, value: int, user: str, identifier: int | str) -> None:
    table.refresh()
    table.append({"a": [value]}, commit_user=user, commit_identifier=identifier)


def rows(table: Table) -> list[int]:
    table.refresh()
    return sorted(table.scan().to_arrow()["a"].to_pylist())


def test_a_commit_of_a_branch_is_not_repeated_on_its_parent(table):
    """By every kind of identifier, with the index of the history warm and cold."""
    dev = branch(table, "dev")
    for number, identifier in enumerate((1, "two", 3)):
        append(dev, number, "job", identifier)
    append(dev, 3, "other", 1)
    assert table.find_commit("job", 1) is None  # the index is warm
    moved = table.branches.fast_forward("dev")
    assert moved.branch_commits == {"job": (1, "two", 3), "other": (1,)}
    assert moved.is_commit_of("job", "3")
    assert not moved.is_commit_of("other", 3)
    for _ in range(2):
        for user, identifier in (("job", "1"), ("job", "two"), ("job", 3), ("other", 1)):
            append(table, 9, user, identifier)
            assert table.find_commit(user, identifier).hash == moved.hash
        assert rows(table) == [0, 1, 2, 3]
        identities._indexes.clear()
    append(table, 5, "job", 4)
    append(table, 6, "other", "two")
    assert rows(table) == [0, 1, 2, 3, 5, 6]


def test_a_commit_is_found_after_several_fast_forwards(table):
    """From a branch of a branch, and from a branch that moves its parent again and again."""
    dev = branch(table, "dev")
    append(dev, 1, "job", 1)
    inner = branch(dev, "inner", version="dev")
    append(inner, 2, "job", 2)
    dev.branches.fast_forward("inner")
    first = table.branches.fast_forward("dev")
    assert first.branch_commits == {"job": (1, 2)}
    append(dev, 3, "job", 3)
    second = table.branches.fast_forward("dev")
    assert second.branch_commits == {"job": (3,)}
    for number in (1, 2, 3):
        append(table, 9, "job", number)
        append(dev, 9, "job", number)
    assert rows(table) == rows(dev) == [1, 2, 3]


def test_a_commit_is_found_after_its_branch_has_gone(table):
    dev = branch(table, "dev")
    append(dev, 1, "job", 1)
    append(dev, 2, "job", 2)
    table.branches.fast_forward("dev")
    table.branches.delete("dev")
    table.append({"a": [3]})
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=2)
    append(table, 9, "job", 1)
    assert rows(table) == [1, 2, 3]


def test_a_commit_after_a_fast_forward_brings_no_commits(table):
    dev = branch(table, "dev")
    append(dev, 1, "job", 1)
    table.branches.fast_forward("dev")
    table.append({"a": [2]})
    assert table.snapshot.branch_commits == {}
    assert table.restore(0).branch_commits == {}
    append(table, 9, "job", 1)  # committed, though it is not there any more
    assert rows(table) == []
    fresh = branch(table, "fresh")
    append(fresh, 9, "job", 1)
    fresh.append({"a": [7]})
    assert table.branches.fast_forward("fresh").branch_commits == {}
    assert rows(table) == [7]

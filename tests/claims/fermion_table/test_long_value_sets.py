"""Filters whose texts are alike, as Arrow shortens them, are different filters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fermion.predicate import parse_filter
from fermion_table import Table
from fermion_table.operations import draft

FIRST = [*range(10), *range(100, 200), *range(990, 1000)]
SECOND = [*range(10), *range(300, 400), *range(990, 1000)]


def among(values: list[int]) -> Any:
    """A filter over a computed column, which no comparison of ours can be made of."""
    return (pc.field("id") + 0).isin(values)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table.create(tmp_path / "t", pa.schema([("id", pa.int64())]), durability="fast")
    table.append({"id": list(range(1000))})
    return table


def test_bug_the_second_of_two_deletes_with_long_value_sets_was_taken_for_the_first(
    table: Table,
) -> None:
    """In one transaction; both texts have the same first and last ten values."""
    assert str(among(FIRST)) == str(among(SECOND))
    with table.transaction() as transaction:
        transaction.delete(among(FIRST))
        transaction.delete(among(SECOND))
    left = set(table.scan().to_arrow()["id"].to_pylist())
    assert left == set(range(1000)).difference(FIRST, SECOND)


def test_updates_with_long_value_sets_keep_apart(table: Table) -> None:
    """The second one sees the rows as the first has left them."""
    with table.transaction() as transaction:
        transaction.update(among(FIRST), {"id": pc.field("id") + 10_000})
        transaction.update(among(SECOND), {"id": pc.field("id") + 20_000})
    found = sorted(table.scan().to_arrow()["id"].to_pylist())
    second = set(SECOND).difference(FIRST)
    expected = [
        each + (10_000 if each in set(FIRST) else 20_000 if each in second else 0)
        for each in range(1000)
    ]
    assert found == sorted(expected)


def test_a_filter_is_found_again_when_a_transaction_is_made_again(table: Table) -> None:
    """Another commit comes first: the rows of the old file are not looked for twice."""
    found: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        put = draft.FindingCache.put

        def watched(self: Any, entry: Any, *arguments: Any) -> None:
            found.append(entry.file)
            put(self, entry, *arguments)

        patch.setattr(draft.FindingCache, "put", watched)
        with table.transaction() as transaction:
            transaction.delete(among(FIRST))
            Table.open(table.location).append({"id": [5]})
    assert len(found) == len(set(found)) == 2
    assert 5 not in table.scan().to_arrow()["id"].to_pylist()


def test_expressions_of_one_text_are_not_equal() -> None:
    one, other = parse_filter(among(FIRST)), parse_filter(among(SECOND))
    assert one.to_sql() == other.to_sql()
    assert one != other
    assert one == one
    assert len({one, other}) == 2

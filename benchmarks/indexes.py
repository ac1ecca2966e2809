"""Tables 12: find rows by a column that is not the key, with and without an index of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import harness, tables
from benchmarks.layers import FermionTable, LanceTable
from benchmarks.question import Action, Case, Question, Size, Target

ROWS = {"full": 10_000_000, "quick": 500_000, "tiny": 20_000}
GROUPS = 1_000
ASKED = 20


@lru_cache(maxsize=1)
def rows_of(count: int) -> pa.Table:
    """Mail addresses in random order, each once; and a group of a thousand for each."""
    order = np.random.default_rng(tables.SEED).permutation(count)
    numbers = pc.utf8_lpad(pc.cast(pa.array(order), pa.string()), 9, "0")
    mails = pc.binary_join_element_wise("https://example.org/users/", numbers, "")
    groups = pc.binary_join_element_wise(
        "group-", pc.cast(pa.array(order % GROUPS), pa.string()), ""
    )
    return pa.table({"id": np.arange(count), "mail": mails, "team": groups, "value": order * 0.5})


def mail(number: int) -> str:
    """One of the addresses."""
    return f"https://example.org/users/{number:09}"


@dataclass(frozen=True)
class FermionIndexed(FermionTable):
    """Ours, with indexes of both columns, or without."""

    indexed: bool = True

    def index(self, table: Any, column: str, kind: str) -> None:
        """Index a column that has no index."""
        table.indexes.create(column, kind=kind)

    def find(self, table: Any, filter: str) -> pa.Table:
        """The rows of a filter."""
        return table.scan(filter=filter).to_arrow()


@dataclass(frozen=True)
class LanceIndexed(LanceTable):
    """Lance, with its scalar indices, or without."""

    indexed: bool = True

    def index(self, table: Any, column: str, kind: str) -> None:
        table.create_scalar_index(column, kind.upper())

    def find(self, table: Any, filter: str) -> pa.Table:
        return table.to_table(filter=filter)


def made(layer: Any, size: Size, *, indexed: bool) -> str:
    """Where a table lies that was written by one commit, with indexes or without."""

    def make(path: str) -> None:
        rows = rows_of(ROWS[size])
        layer.create(path, rows.schema)
        layer.append(layer.open(path), rows)
        if indexed:
            layer.index(layer.open(path), "mail", "btree")
            layer.index(layer.open(path), "team", "bitmap")

    return tables.stored(layer, size, "indexed" if indexed else "plain", make)


def built(column: str, kind: str) -> Case:
    """Index a column of a table without indexes."""

    def prepare(layer: Any, size: Size) -> Action:
        path = made(layer, size, indexed=False)
        fresh = tables.copy_of(layer, size, path, lambda _: None)
        return lambda: layer.index(layer.open(fresh), column, kind)

    return Case(prepare, rounds=3)


def sorted_write(layer: Any, size: Size) -> Action:
    """Sort the rows by the column, and write them."""
    rows = rows_of(ROWS[size])

    def action() -> None:
        path = tables.fresh(layer, size)
        layer.create(path, rows.schema)
        layer.append(layer.open(path), rows.sort_by("mail"))

    return action


def find(filters: list[str], *, opens: bool = False) -> Case:
    """Find the rows of some filters, one after the other, in a table that is open or not."""

    def prepare(layer: Any, size: Size) -> Action:
        path = made(layer, size, indexed=layer.indexed)
        known = layer.open(path)

        def action() -> dict[str, int]:
            table = layer.open(path) if opens else known
            return {"rows": sum(layer.find(table, filter).num_rows for filter in filters)}

        return action

    return Case(prepare, calls=3)


NUMBERS = np.random.default_rng(1).integers(0, 20_000, ASKED).tolist()
QUESTION = Question(
    module="benchmarks.indexes",
    title="Tables 12  Find rows of 10,000,000 by a column that is not the key",
    cases={
        "index strings": built("mail", "btree"),
        "index groups": built("team", "bitmap"),
        "sort, write": Case(sorted_write, rounds=3),
        "open, find 1": find([f"mail = '{mail(NUMBERS[0])}'"], opens=True),
        "find 20, one by one": find([f"mail = '{mail(number)}'" for number in NUMBERS]),
        "find 20 at once": find([f"mail IN ({', '.join(repr(mail(n)) for n in NUMBERS)})"]),
        "find a range of 100": find([f"mail >= '{mail(5_000)}' AND mail < '{mail(5_100)}'"]),
        "find a group": find(["team = 'group-7'"]),
    },
    libraries=(
        FermionIndexed("fermion", own=True),
        FermionIndexed("fermion, no index", own=True, indexed=False),
        LanceIndexed("lance"),
        LanceIndexed("lance, no index", indexed=False),
    ),
    targets=(
        Target("find 20, one by one", 0.1),
        Target("index strings", 2.0, of="sort, write"),
    ),
    rounds={"full": 5, "quick": 2, "tiny": 1},
    notes="Lance's indices are a BTREE of the strings and a BITMAP of the groups.",
)

if __name__ == "__main__":
    harness.main(QUESTION)

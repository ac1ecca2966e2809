"""Tables, 6: deleting and updating one row in a hundred of five million."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import harness, tables
from benchmarks.layers import DELTA, FULL, ICEBERG, LANCE_TABLE, PAIMON, Layer
from benchmarks.question import Action, Case, Question, Size, Target

ROWS = {"full": 5_000_000, "quick": 200_000, "tiny": 1_000}
COMMITS = 5


def changed(change: Callable[[Any, Any, int], None]) -> Case:
    """Open the table and change the rows with the lowest ids."""

    def prepare(layer: Layer, size: Size) -> Action:
        each = ROWS[size] // COMMITS
        path = tables.copy_of(
            layer,
            size,
            tables.appended(layer, size, commits=COMMITS, each=each) if layer.movable else "",
            lambda target: tables.append_all(layer, target, COMMITS, each),
        )
        return lambda: change(layer, layer.open(path), ROWS[size] // 100)

    return Case(prepare)


QUESTION = Question(
    module="benchmarks.table_row_changes",
    title="Tables 6  Delete or update 1 % of 5,000,000 rows",
    cases={
        "delete": changed(lambda layer, table, below: layer.delete(table, below)),
        "update": changed(lambda layer, table, below: layer.update(table, below)),
    },
    libraries=(FULL, DELTA, ICEBERG, LANCE_TABLE, PAIMON),
    targets=(
        Target("delete", 1.0, of=DELTA.name),
        Target("delete", 1.0, of=ICEBERG.name),
        Target("update", 1.0, of=DELTA.name),
    ),
    rounds={"full": 3},
    notes="Five files of a million rows; the rows to change lie in the first.",
)

if __name__ == "__main__":
    harness.main(QUESTION)

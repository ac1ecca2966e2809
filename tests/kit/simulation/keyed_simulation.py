"""A primary-key table under simulated faults: upserters, deleters, and compactors of its trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from fermion_table.commit.replacement import TableDefinition
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.schema.schema import TableSchema
from fermion_table.table.table import Table
from tests.kit.simulation.history_check import Attempt
from tests.kit.simulation.operations import data_of
from tests.kit.simulation.simulated_storage import Faults
from tests.kit.simulation.simulation import (
    SCHEMA,
    WITH_IMAGES,
    Report,
    Simulation,
    run_simulation,
)

KEYS = [f"k{number}" for number in range(6)]
MANY_KEYS = [f"k{number}" for number in range(30)]
"""Where the first row of a key stays."""
PADDED_KEYS = [f"padded{number}" for number in range(4)]
"""Keys that no operation names."""
PADDING_BYTES = 8_000
CHANGES = ["+I", "-U", "+U", "-D"]


@dataclass(frozen=True, slots=True)
class _SetUp:
    """What becomes of the rows of a key, and what is done to them.

    Attributes
    ----------
    properties
        Of the table.
    kinds
        Of operations besides upserts and columns that are added; as often as they are named.
    """

    properties: dict[str, str] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()


_ROW_CHANGES = ("remove", "delete", "update", "merge", "merge and delete", "replace")
SET_UPS = {
    "deduplicate": _SetUp({}, ("changes", "changes", "remove", "remove", *_ROW_CHANGES)),
    "newest": _SetUp({"sequence.field": "v"}),
    "sum": _SetUp(
        {
            "merge_engine": "aggregation",
            "fields.v.aggregate_function": "sum",
            "aggregation.remove_record_on_delete": "true",
        },
        ("changes", "changes", *_ROW_CHANGES),
    ),
    "fill": _SetUp(
        {"merge_engine": "partial_update", "partial_update.remove_record_on_delete": "true"},
        _ROW_CHANGES,
    ),
    "first": _SetUp({"merge_engine": "first_row"}),
}
"""By the name that `history_rows.FOLDS` knows them by."""


def simulate_keyed(seed: int, *, faults: Faults | None = None) -> Report:
    """Run a primary-key table under faults, and check what came of it.

    Parameters
    ----------
    seed
        Decides everything.
    faults
        What goes wrong; None takes one of `WEATHERS`.

    Raises
    ------
    Violation
        A promise of the table was broken; the message begins with the seed.
    """
    return run_simulation(KeyedSimulation(seed, faults))


class KeyedSimulation(Simulation):
    """A primary-key table of a few keys, and processes that work on it."""

    adds = "upsert"

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        super().__init__(seed, faults)
        self.set_up = self.dice.choice(["deduplicate", *SET_UPS])
        producers = ["none", "lookup", "lookup" if self.set_up == "first" else "input"]
        self.producer = producers[seed % len(producers)]  # each with each of four kinds of faults

    def schema(self) -> TableSchema:
        """Few buckets, and compactions early."""
        schema = WITH_IMAGES if self.seed // 4 % 2 else SCHEMA
        definition = TableDefinition(
            schema=schema.append(pa.field("padding", pa.binary())),
            primary_key=["k"],
            properties={
                "bucket": str(self.dice.randint(1, 2)),
                "num_sorted_run.compaction_trigger": str(self.dice.randint(2, 4)),
                "deletion_vectors.enabled": self.dice.choice(["true", "false"]),
                **SET_UPS[self.set_up].properties,
                "changelog_producer": self.producer,
            },
        )
        return definition.first_schema()

    def prepare(self) -> None:
        """A large run at the top level, so that the next compactions do not take all runs."""
        keys = PADDED_KEYS if self.set_up == "first" else [*KEYS, *PADDED_KEYS]
        rows = [[key, 0] for key in keys]
        attempt = self.main.new_attempt("first", {"kind": "upsert", "rows": rows})
        padding = pa.array([self.dice.randbytes(PADDING_BYTES) for _ in rows], pa.binary())
        table = self.main.latest()
        data = data_of(rows, table).append_column("padding", padding)
        attempt.acknowledged = table.upsert(data, message=attempt.message)
        attempt.is_settled = True
        table.compact(full=True, threads=1)

    def processes(self) -> dict[str, Callable[[str], None]]:
        """Two compactors, so that they meet."""
        every = super().processes() | {"compactor-2": self.compactor}
        del every["expiry-2"]  # the simulation of append tables has two
        return every

    def operation(self, key: str) -> dict[str, Any]:
        """What to do next: mostly upsert and delete by key."""
        others = SET_UPS[self.set_up].kinds
        kind = self.dice.choice(["upsert"] * 5 + ["add column", *others])
        operation: dict[str, Any] = {"kind": "upsert" if kind == "changes" else kind}
        operation["set-up"] = self.set_up
        count = self.dice.randint(1, 4)
        keys = MANY_KEYS if self.set_up == "first" else KEYS
        rows = [[self.dice.choice(keys), self.value()] for _ in range(count)]
        if kind == "changes":
            rows = [[*row, self.dice.choice(CHANGES)] for row in rows]
        if kind.startswith("merge"):  # each row of the table has one partner
            rows = list({row[0]: row for row in rows}.values())
        if kind in ("upsert", "changes", "replace", "merge", "merge and delete"):
            operation["rows"] = rows
        if kind == "remove":
            operation["keys"] = [each for each, *_ in rows]
        if kind in ("delete", "update", "replace"):
            operation["key"] = self.dice.choice(KEYS)
        if kind == "update":
            operation["value"] = self.dice.randint(100, 109)
        return operation

    def value(self) -> int | None:
        """Of a row to write."""
        if self.set_up == "fill" and self.dice.random() < 0.3:
            return None
        return self.dice.randint(0, 99)

    def perform(self, table: Table, attempt: Attempt, words: dict[str, Any]) -> Snapshot | None:
        """Carry out an operation; the snapshot, or None if there was nothing to change."""
        operation = attempt.operation
        rows = operation.get("rows", [])
        match operation["kind"]:
            case "upsert" if len(rows[0]) == 2:
                return table.upsert(data_of(rows, table), **words)
            case "upsert":
                kinds = pa.array([kind for *_, kind in rows])
                data = data_of([row[:2] for row in rows], table).append_column("kind", kinds)
                return table.upsert(data, change_type="kind", **words)
            case "remove":
                return table.delete_keys(pa.table({"k": operation["keys"]}), **words)
            case "replace":
                filter = f"k = '{operation['key']}'"
                return table.overwrite(data_of(rows, table), filter=filter, **words)
            case "merge":
                merge = table.merge(data_of(rows), on="k", **words)
                made = merge.when_matched_update({"v": "source.v"}).execute().snapshot
            case "merge and delete":
                merge = table.merge(data_of(rows), on="k", **words)
                made = merge.when_matched_delete().execute().snapshot
            case _:
                return super().perform(table, attempt, words)
        return made if made is not None and made.message == attempt.message else None

    def compact(self) -> None:
        """Some runs of each tree, or all of them."""
        self.main.latest().compact(full=self.dice.random() < 0.4, threads=1)

"""A primary-key table under simulated faults: upserters, deleters, and compactors of its trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from fermion_table.commit.replacement import TableDefinition
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.schema.schema import TableSchema
from fermion_table.table.table import Table
from fermion_table.testing.history_check import Attempt
from fermion_table.testing.simulated_storage import Faults
from fermion_table.testing.simulation import (
    SCHEMA,
    Report,
    Simulation,
    data_of,
    run_simulation,
)

KEYS = [f"k{number}" for number in range(6)]
PADDED_KEYS = [f"padded{number}" for number in range(4)]
"""Keys that no operation names."""
PADDING_BYTES = 8_000
CHANGES = ["+I", "-U", "+U", "-D"]
KINDS = ["upsert"] * 5 + ["remove"] * 3 + ["changes"] * 2
KINDS += ["delete", "update", "replace", "add column"]


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

    def schema(self) -> TableSchema:
        """Few buckets, and compactions early."""
        definition = TableDefinition(
            schema=SCHEMA.append(pa.field("padding", pa.binary())),
            primary_key=["k"],
            properties={
                "bucket": str(self.dice.randint(1, 2)),
                "num_sorted_run.compaction_trigger": str(self.dice.randint(2, 4)),
                "deletion_vectors.enabled": self.dice.choice(["true", "false"]),
            },
        )
        return definition.first_schema()

    def prepare(self) -> None:
        """A large run at the top level, so that the next compactions do not take all runs."""
        rows = [[key, 0] for key in (*KEYS, *PADDED_KEYS)]
        attempt = self.main.new_attempt("first", {"kind": "upsert", "rows": rows})
        padding = pa.array([self.dice.randbytes(PADDING_BYTES) for _ in rows], pa.binary())
        table = self.main.latest()
        data = data_of(rows).append_column("padding", padding)
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
        kind = self.dice.choice(KINDS)
        operation: dict[str, Any] = {"kind": "upsert" if kind == "changes" else kind}
        count = self.dice.randint(1, 4)
        rows = [[self.dice.choice(KEYS), self.dice.randint(0, 99)] for _ in range(count)]
        if kind == "changes":
            rows = [[*row, self.dice.choice(CHANGES)] for row in rows]
        if kind in ("upsert", "changes", "replace"):
            operation["rows"] = rows
        if kind == "remove":
            operation["keys"] = [each for each, *_ in rows]
        if kind in ("delete", "update", "replace"):
            operation["key"] = self.dice.choice(KEYS)
        if kind == "update":
            operation["value"] = self.dice.randint(100, 109)
        return operation

    def perform(self, table: Table, attempt: Attempt, user: str, number: int) -> Snapshot | None:
        """Carry out an operation; the snapshot, or None if there was nothing to change."""
        operation = attempt.operation
        words: dict[str, Any] = {
            "message": attempt.message,
            "commit_user": user,
            "commit_identifier": number,
        }
        match operation["kind"]:
            case "upsert":
                rows = operation["rows"]
                data = data_of([row[:2] for row in rows])
                if len(rows[0]) == 2:
                    return table.upsert(data, **words)
                kinds = pa.array([kind for *_, kind in rows])
                return table.upsert(data.append_column("kind", kinds), change_type="kind", **words)
            case "remove":
                return table.delete_keys(pa.table({"k": operation["keys"]}), **words)
            case "replace":
                data, filter = data_of(operation["rows"]), f"k = '{operation['key']}'"
                return table.overwrite(data, filter=filter, **words)
        return super().perform(table, attempt, user, number)

    def compact(self) -> None:
        """Some runs of each tree, or all of them."""
        self.main.latest().compact(full=self.dice.random() < 0.4, threads=1)

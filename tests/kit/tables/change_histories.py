"""Tables with a random history of commits of every kind, to compare ways to read their changes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from fermion_table import Table

SCHEMA = pa.schema([("p", pa.int32()), ("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
KINDS: dict[str, dict[str, str] | None] = {
    "append table": None,
    "deduplicate": {},
    "first_row": {"merge_engine": "first_row"},
    "aggregation": {
        "merge_engine": "aggregation",
        "fields.v.aggregate_function": "sum",
        "aggregation.remove_record_on_delete": "true",
    },
    "input": {"changelog_producer": "input"},
    "lookup": {"changelog_producer": "lookup"},
    "full_compaction": {"changelog_producer": "full_compaction"},
    "deletion vectors": {"deletion_vectors.enabled": "true"},
    "shown by compaction": {
        "deletion_vectors.enabled": "true",
        "deletion_vectors.merge_on_read": "false",
    },
}
"""Settings of primary-key tables; None: an append table."""


def random_table(path: Path, kind: str, commits: int, seed: int = 0) -> Table:
    """Make a table, partitioned by ``p``, and commit to it."""
    settings = KINDS[kind]
    keyed: dict[str, Any] = {}
    if settings is not None:
        keyed = {"primary_key": ["p", "k"], "properties": {"bucket": "2", **settings}}
    table = Table.create(path, SCHEMA, partition_by=["p"], durability="fast", **keyed)
    chosen = random.Random(seed)
    for _ in range(commits):
        commit(table, kind, chosen)
    return table


def commit(table: Table, kind: str, chosen: random.Random) -> None:
    """Commit something to a table of a kind."""
    settings = KINDS[kind]
    rows = chosen.randint(1, 15)
    numbers = {"p": 1, "k": 20, "v": 3}
    data = {name: [chosen.randint(0, top) for _ in range(rows)] for name, top in numbers.items()}
    given = pa.table({**data, "s": ["x"] * rows}, SCHEMA)
    what = chosen.random()
    if what < 0.15 and settings is not None:
        table.compact(full=chosen.random() < 0.5)
    elif what < 0.15:
        table.compact()
    elif what < 0.3 and settings not in ({"merge_engine": "first_row"},):
        table.delete(f"k = {chosen.randint(0, 20)}")
    elif what < 0.4:
        if settings is not None:
            table.set_properties({"bucket": str(chosen.randint(1, 3))})
        table.overwrite(given, dynamic=True)
    elif what < 0.45 and table.snapshot.id > 2:
        table.restore(table.snapshot.id - 2)
    else:
        table.append(given)

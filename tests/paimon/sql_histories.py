"""Histories of SQL statements, drawn from seeds: texts that both Spark and tables here take."""

from __future__ import annotations

import random
from typing import Any

from tests.paimon.drawn_histories import ADDITIONS, PARTITIONS, Family, aggregation, row_of

COLUMNS = {"a": "INT", "b": "STRING", "c": "DOUBLE"}
KEYS = range(6)
STATEMENTS = (4, 6)
"""The least and the greatest number of statements after the first one, which inserts rows."""
KINDS = {"insert": 3, "delete": 2, "update": 2, "merge": 3, "overwrite": 1}
CONDITIONS = [
    *("a > 1", "a IS NULL", "b = 'a' OR c < 1.0", "NOT (a = 2)", "k IN (1, 3, 5)"),
    *("b IS NOT NULL AND a <= 3", "k >= 4"),
]
"""Of columns, which are null in some rows."""
ASSIGNMENTS: list[dict[str, Any]] = [
    *({"b": "new"}, {"a": None, "c": 0.25}, {"a": 7, "b": None}),
]
CLAUSES: list[list[tuple[str, str, str | None]]] = [
    [("matched", "update", None), ("not_matched", "insert", None)],
    [("matched", "delete", None), ("not_matched", "insert", None)],
    [("matched", "delete", "source.a > 1"), ("matched", "update", None)],
    [("matched", "update", "target.a IS NULL"), ("not_matched", "insert", "source.b = 'a'")],
    [("not_matched", "insert", "source.c < 1.0 OR source.a = 2")],
]
"""Of merges, in their order: which rows, what to do, a condition."""

SQL_FAMILIES: dict[str, Family] = {
    "deduplicate": Family(columns=COLUMNS),
    "deduplicate, partitions and buckets": Family(columns=COLUMNS, partitioned=True),
    "deduplicate by sequence": Family(
        options={"sequence.field": "s"}, columns={"s": "BIGINT", **COLUMNS}, compacted="never"
    ),
    "deduplicate with deletion vectors": Family(
        options={"deletion-vectors.enabled": "true"}, columns=COLUMNS, inline=True
    ),
    "aggregation": Family(
        options=aggregation({"a": "sum", "b": "last_non_null_value", "c": "max"}),
        columns=COLUMNS,
        kinds=ADDITIONS,
    ),
}


def drawn_sql(name: str, number: int) -> dict:
    """Draw a history of a family; the same one for the same arguments."""
    family = SQL_FAMILIES[name]
    source = random.Random(f"sql {name} {number}")
    columns = {"k": "INT", **family.columns}
    key, partition = ["k"], []
    if family.partitioned:
        columns, key, partition = {"p": "STRING", **columns}, ["p", "k"], ["p"]
    kinds = KINDS if family.kinds is not ADDITIONS else {"insert": 1}
    if family.partitioned:
        kinds = {kind: weight for kind, weight in kinds.items() if kind != "overwrite"}
    statements = [{"kind": "insert", "rows": rows_of_keys(source, family)}]
    statements += [
        statement_of(source, family, kinds, key) for _ in range(source.randint(*STATEMENTS))
    ]
    compacts = [None] if family.compacted == "never" else [None, None, "full"]
    return {
        "name": f"{name}, {number}",
        "options": {"bucket": "2" if family.partitioned else "1", **family.options},
        "paimon_options": {"write-only": str(not family.inline).lower()},
        "primary_key": key,
        "partition": partition,
        "schema": [[column, text, column not in key] for column, text in columns.items()],
        "commits": statements,
        "compactions": [source.choice(compacts) for _ in statements],
        "our_compactions": [source.choice([None, "some", "full"]) for _ in statements],
    }


def statement_of(
    source: random.Random, family: Family, kinds: dict[str, int], key: list[str]
) -> dict[str, Any]:
    """Draw a statement."""
    kind = source.choices(list(kinds), list(kinds.values()))[0]
    where = source.choice(CONDITIONS)
    if kind == "delete":
        return {"kind": kind, "where": where}
    if kind == "update":
        return {"kind": kind, "where": where, "set": source.choice(ASSIGNMENTS)}
    rows = rows_of_keys(source, family)
    if kind == "merge":
        return {"kind": kind, "rows": rows, "on": key, "clauses": source.choice(CLAUSES)}
    return {"kind": kind, "rows": rows}


def rows_of_keys(source: random.Random, family: Family) -> list[dict]:
    """Draw rows of different keys: the rows of an INSERT have no order."""
    rows = []
    for k in source.sample(KEYS, source.randint(1, 4)):
        row = row_of(source, family) | {"k": k}
        if family.partitioned:
            row["p"] = source.choice(PARTITIONS)
        row.pop("_kind")
        rows.append(row)
    return rows

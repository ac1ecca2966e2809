"""Histories of primary-key tables, drawn from seeds: what both systems carry out.

A history has the form of `tests.kit.tables.paimon_histories`, without its results.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

COMMITS = (3, 7)
"""The least and the greatest number of commits."""
ROWS = (1, 5)
"""Of a commit."""
KEYS = [0, 1, 2, 3]
PARTITIONS = ["x", "y"]
NULLS = 0.25
"""Share of values that are null."""

VALUES: dict[str, list[Any]] = {
    "INT": [0, 1, 2, 3, 7, -4],
    "BIGINT": [1, 2, 3, 4],
    "STRING": ["", "a", "b", "ab", "é"],
    "DOUBLE": [0.5, -1.25, 2.0, 8.0],
    "DATE": ["1969-12-31", "1970-01-01", "2024-02-29"],
    "TIMESTAMP(6)": ["2024-01-01T00:00:00.000001", "1969-12-31T23:59:59.999999"],
    "DECIMAL(9, 2)": ["-1.01", "0.00", "2.50"],
    "BOOLEAN": [False, True],
    "ARRAY<INT>": [[], [1], [2, 1], [1, 1, 3]],
    "MAP<STRING, INT>": [[], [["a", 1]], [["a", 2], ["b", 1]], [["c", 3]]],
    "ARRAY<ROW<x INT, y STRING>>": [
        [],
        [{"x": 1, "y": "a"}],
        [{"x": 1, "y": "b"}, {"x": 2, "y": "c"}],
        [{"x": 3, "y": None}],
    ],
}
PLAIN = {
    "a": "INT",
    "b": "STRING",
    "c": "DOUBLE",
    "d": "DECIMAL(9, 2)",
    "e": "DATE",
    "f": "TIMESTAMP(6)",
    "g": "BOOLEAN",
}
ADDITIONS = {"+I": 4, "+U": 1}
ALL_KINDS = {"+I": 8, "+U": 2, "-U": 2, "-D": 4}
DELETIONS = {"+I": 6, "+U": 2, "-D": 3}


@dataclass(frozen=True, kw_only=True)
class Family:
    """Histories of tables with the same settings, and what they leave out.

    `tests.paimon.differences` holds the reasons, with a history of each that shows the difference.

    Attributes
    ----------
    options
        The table's, by Paimon's names.
    columns
        Types of the columns besides the key, by name.
    kinds
        Of rows, with their weights.
    values
        By column, where others than those of its type are drawn.
    partitioned
        Whether the table has partitions, and several buckets.
    inline
        Whether Paimon's readers see only what a writer has compacted; else compaction comes
        where it is drawn.
    compacted
        What Paimon compacts where that is drawn: "any" runs, or the "whole" of a bucket; "always":
        the whole after each commit; "never": nothing.
    apart
        Whether no commit has two rows of a key.
    takes_back
        Whether each retraction takes back an addition; the columns that it has then, None: all.
    groups
        Columns by the sequence column without which they are null.
    unordered
        Columns of lists whose order is Paimon's own.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=lambda: PLAIN)
    kinds: Mapping[str, int] = field(default_factory=lambda: ALL_KINDS)
    values: Mapping[str, list[Any]] = field(default_factory=dict)
    partitioned: bool = False
    inline: bool = False
    compacted: Literal["any", "whole", "always", "never"] = "any"
    apart: bool = False
    takes_back: bool = False
    taken_back: tuple[str, ...] | None = None
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unordered: tuple[str, ...] = ()


def aggregation(functions: Mapping[str, str], **settings: str) -> dict[str, str]:
    """Options of the engine, with the functions of columns."""
    named = {f"fields.{name}.aggregate-function": each for name, each in functions.items()}
    return {"merge-engine": "aggregation", **named, **settings}


PARTIAL = {"merge-engine": "partial-update"}
FIRST_ROW = {"merge-engine": "first-row"}
GROUPS = PARTIAL | {"fields.s.sequence-group": "a,b", "fields.t.sequence-group": "c"}
GROUPED: dict[str, Any] = {
    "columns": {"s": "BIGINT", "a": "INT", "b": "STRING", "t": "BIGINT", "c": "DOUBLE"}
    | {"d": "DATE"},
    "groups": {"s": ("a", "b"), "t": ("c",)},
}
GROUPED_BACK: dict[str, Any] = GROUPED | {
    "takes_back": True,
    "taken_back": ("s", "a", "b", "t", "c"),
}
NESTED = "ARRAY<ROW<x INT, y STRING>>"
NESTED_OPTIONS = aggregation(
    {"a": "nested_update", "b": "nested_update"}, **{"fields.a.nested-key": "x"}
)
COLLECT_OPTIONS = aggregation({"a": "collect", "b": "collect"}, **{"fields.b.distinct": "true"})
FOLDED_LATE: dict[str, Any] = {"apart": True, "compacted": "whole"}
SETS = {"b": [[], [1], [2, 1], [1, 3]]}
FACTORS = {"c": [0.5, 2.0, 4.0], "n": [1, 2]}

FAMILIES: dict[str, Family] = {
    "deduplicate": Family(),
    "deduplicate, partitions and buckets": Family(partitioned=True),
    "deduplicate, ignoring deletions": Family(options={"ignore-delete": "true"}),
    "deduplicate by sequence": Family(
        options={"sequence.field": "s"}, columns={"s": "BIGINT", **PLAIN}, kinds=ADDITIONS
    ),
    "deduplicate by sequence with deletions": Family(
        options={"sequence.field": "s"}, columns={"s": "BIGINT", **PLAIN}, compacted="never"
    ),
    "deduplicate by two sequences, descending": Family(
        options={"sequence.field": "s,t", "sequence.field.sort-order": "descending"},
        columns={"s": "BIGINT", "t": "STRING", **PLAIN},
        compacted="never",
        apart=True,
    ),
    "deduplicate with deletion vectors": Family(
        options={"deletion-vectors.enabled": "true"}, inline=True
    ),
    "deduplicate by sequence with deletion vectors": Family(
        options={"sequence.field": "s", "deletion-vectors.enabled": "true"},
        columns={"s": "BIGINT", **PLAIN},
        kinds=ADDITIONS,
        inline=True,
    ),
    "first row": Family(options=FIRST_ROW, kinds=ADDITIONS, inline=True),
    "first row, ignoring deletions": Family(
        options=FIRST_ROW | {"ignore-delete": "true"}, inline=True
    ),
    "partial update": Family(options=PARTIAL, kinds=ADDITIONS),
    "partial update, ignoring deletions": Family(options=PARTIAL | {"ignore-delete": "true"}),
    "partial update with removal": Family(
        options=PARTIAL | {"partial-update.remove-record-on-delete": "true"},
        kinds=DELETIONS,
        takes_back=True,
        taken_back=(),
        **FOLDED_LATE,
    ),
    "partial update with deletion vectors": Family(
        options=PARTIAL | {"deletion-vectors.enabled": "true"}, kinds=ADDITIONS, inline=True
    ),
    "sequence groups": Family(options=GROUPS, kinds=ADDITIONS, **GROUPED),
    "sequence groups with deletions": Family(options=GROUPS, **GROUPED_BACK),
    "sequence groups with removal": Family(
        options=GROUPS | {"partial-update.remove-record-on-sequence-group": "s"},
        kinds=DELETIONS,
        takes_back=True,
        taken_back=("s",),
        apart=True,
        compacted="always",
        **GROUPED,
    ),
    "sequence groups of two columns": Family(
        options=PARTIAL | {"fields.s,t.sequence-group": "a,b"},
        columns={"s": "BIGINT", "t": "STRING", **PLAIN},
        kinds=ADDITIONS,
        groups={"s": ("t", "a", "b")},
    ),
    "sequence groups with functions": Family(
        options=GROUPS
        | {"fields.a.aggregate-function": "sum", "fields.c.aggregate-function": "max"},
        kinds=ADDITIONS,
        **GROUPED,
    ),
    "sequence groups with functions and deletions": Family(
        options=GROUPS
        | {"fields.a.aggregate-function": "sum", "fields.c.aggregate-function": "sum"},
        **GROUPED_BACK,
        **FOLDED_LATE,
    ),
    "aggregation, commutative": Family(
        options=aggregation(
            {"a": "sum", "b": "max", "c": "product", "d": "sum", "e": "min", "f": "max"}
            | {"g": "bool_and", "h": "bool_or"},
        ),
        columns={**PLAIN, "h": "BOOLEAN"},
        kinds=ADDITIONS,
        values=FACTORS,
    ),
    "aggregation with deletion vectors": Family(
        options=aggregation(
            {"a": "sum", "b": "max", "c": "min", "d": "last_value"},
            **{"deletion-vectors.enabled": "true"},
        ),
        kinds=ADDITIONS,
        inline=True,
    ),
    "aggregation, sums taken back": Family(
        options=aggregation({"a": "sum", "c": "sum", "d": "sum", "n": "sum"}),
        columns={"a": "INT", "c": "DOUBLE", "d": "DECIMAL(9, 2)", "n": "BIGINT"},
        takes_back=True,
    ),
    "aggregation, products taken back": Family(
        options=aggregation({"c": "product", "n": "product"}),
        columns={"c": "DOUBLE", "n": "BIGINT"},
        values=FACTORS,
        takes_back=True,
        **FOLDED_LATE,
    ),
    "aggregation, first and last values": Family(
        options=aggregation(
            {"a": "first_value", "b": "last_value", "c": "first_non_null_value"}
            | {"d": "last_non_null_value"},
        ),
        kinds=ADDITIONS,
    ),
    "aggregation, last values taken back": Family(
        options=aggregation({"a": "last_value", "b": "last_non_null_value"}),
        columns={"a": "INT", "b": "STRING"},
        takes_back=True,
        **FOLDED_LATE,
    ),
    "aggregation, texts": Family(
        options=aggregation(
            {"b": "listagg", "t": "listagg", "u": "listagg"},
            **{"fields.t.distinct": "true", "fields.u.list-agg-delimiter": ";"},
        ),
        columns={"b": "STRING", "t": "STRING", "u": "STRING"},
        kinds=ADDITIONS,
        values={name: ["a", "b", "ab", "é"] for name in "btu"},
    ),
    "aggregation, collect": Family(
        options=COLLECT_OPTIONS,
        columns={"a": "ARRAY<INT>", "b": "ARRAY<INT>"},
        kinds=ADDITIONS,
        values=SETS,
        unordered=("b",),
    ),
    "aggregation, collect taken back": Family(
        options=COLLECT_OPTIONS,
        columns={"a": "ARRAY<INT>", "b": "ARRAY<INT>"},
        values=SETS,
        unordered=("a", "b"),
        takes_back=True,
        **FOLDED_LATE,
    ),
    "aggregation, merge_map": Family(
        options=aggregation({"a": "merge_map"}),
        columns={"a": "MAP<STRING, INT>"},
        kinds=ADDITIONS,
    ),
    "aggregation, merge_map taken back": Family(
        options=aggregation({"a": "merge_map"}),
        columns={"a": "MAP<STRING, INT>"},
        takes_back=True,
        **FOLDED_LATE,
    ),
    "aggregation, nested_update": Family(
        options=NESTED_OPTIONS,
        columns={"a": NESTED, "b": NESTED},
        kinds=ADDITIONS,
        unordered=("a",),
    ),
    "aggregation, nested_update with a limit": Family(
        options=aggregation({"b": "nested_update"}, **{"fields.b.count-limit": "2"}),
        columns={"b": NESTED},
        kinds=ADDITIONS,
        **FOLDED_LATE,
    ),
    "aggregation, nested_update taken back": Family(
        options=aggregation({"a": "nested_update"}, **{"fields.a.nested-key": "x"}),
        columns={"a": NESTED},
        unordered=("a",),
        takes_back=True,
        **FOLDED_LATE,
    ),
    "aggregation, retractions ignored": Family(
        options=aggregation(
            {"a": "max", "b": "listagg", "c": "sum"},
            **{"fields.a.ignore-retract": "true", "fields.b.ignore-retract": "true"},
        ),
        columns={"a": "INT", "b": "STRING", "c": "DOUBLE"},
        values={"b": ["a", "b"]},
        takes_back=True,
    ),
    "aggregation with removal": Family(
        options=aggregation(
            {"a": "max", "b": "last_value", "c": "sum"},
            **{"aggregation.remove-record-on-delete": "true"},
        ),
        columns={"a": "INT", "b": "STRING", "c": "DOUBLE"},
        kinds=DELETIONS,
        takes_back=True,
        taken_back=(),
        **FOLDED_LATE,
    ),
    "aggregation by sequence": Family(
        options=aggregation(
            {"a": "sum", "b": "last_value", "c": "max", "g": "bool_or"},
            **{"sequence.field": "s", "fields.default-aggregate-function": "last_value"},
        ),
        columns={"s": "BIGINT", "a": "INT", "b": "STRING", "c": "DOUBLE", "g": "BOOLEAN"},
        kinds=ADDITIONS,
    ),
}

PRODUCED: dict[str, tuple[str, ...]] = {
    "deduplicate": ("input", "lookup", "full-compaction"),
    "deduplicate, partitions and buckets": ("lookup", "full-compaction"),
    "deduplicate by sequence": ("lookup", "full-compaction"),
    "deduplicate with deletion vectors": ("lookup",),
    "aggregation with deletion vectors": ("lookup",),
    "first row": ("lookup",),
    "partial update": ("lookup", "full-compaction"),
    "partial update with removal": ("lookup", "full-compaction"),
    "sequence groups": ("lookup", "full-compaction"),
    "sequence groups with deletions": ("lookup", "full-compaction"),
    "aggregation, commutative": ("lookup", "full-compaction"),
    "aggregation, sums taken back": ("lookup", "full-compaction"),
    "aggregation with removal": ("lookup", "full-compaction"),
}
"""Changelog producers with which the histories of families are drawn again."""


def drawn(name: str, number: int, producer: str | None = None) -> dict:
    """Draw a history of a family; the same one for the same arguments."""
    family = FAMILIES[name]
    source = random.Random(f"{name} {number} {producer}")
    columns = {"k": "INT", **family.columns}
    key, partition = ["k"], []
    if family.partitioned:
        columns, key, partition = {"p": "STRING", **columns}, ["p", "k"], ["p"]
    options = {"bucket": "2" if family.partitioned else "1", **family.options}
    if producer:
        options["changelog-producer"] = producer
    added: dict[tuple, list[dict]] = {}
    commits = [commit_of(source, family, key, added) for _ in range(source.randint(*COMMITS))]
    is_inline, compactions = paimon_compactions(source, family, producer, len(commits))
    trigger = str(source.choice([1, 2, 3]))
    return {
        "name": f"{name}{f', {producer}' if producer else ''}, {number}",
        "family": name,
        "options": options,
        "paimon_options": {
            "write-only": str(not is_inline).lower(),
            "num-sorted-run.compaction-trigger": trigger,
        },
        "primary_key": key,
        "partition": partition,
        "schema": [[column, text, column not in key] for column, text in columns.items()],
        "commits": commits,
        "compactions": compactions,
        "our_compactions": [source.choice([None, "some", "full"]) for _ in commits],
    }


def paimon_compactions(
    source: random.Random, family: Family, producer: str | None, count: int
) -> tuple[bool, list[str | None]]:
    """Return whether Paimon's writers compact, and what it compacts after each commit."""
    if producer == "full-compaction" or family.compacted == "always":
        return False, ["full"] * count
    if family.inline or producer == "lookup":  # readers see nothing before
        return True, [source.choice([None, "full"]) for _ in range(count)]
    if family.compacted == "never":
        return False, [None] * count
    if family.compacted == "whole":
        return False, [source.choice([None, "full"]) for _ in range(count)]
    compactions = [source.choice([None, None, "some", "full"]) for _ in range(count)]
    return source.random() < 0.4, compactions


def commit_of(
    source: random.Random, family: Family, key: list[str], added: dict[tuple, list[dict]]
) -> list[dict]:
    """Draw the rows of a commit; `added` holds, by key, those that can be taken back."""
    rows: list[dict] = []
    taken: set[tuple] = set()
    for _ in range(source.randint(*ROWS)):
        row = row_of(source, family)
        values = tuple(row[name] for name in key)
        if family.apart and values in taken:
            continue
        taken.add(values)
        earlier = added.setdefault(values, [])
        if row["_kind"] in ("+I", "+U"):
            earlier.append(row)
        elif family.takes_back:
            if not earlier:
                continue
            back = earlier.pop(source.randrange(len(earlier)))
            names = back if family.taken_back is None else (*key, *family.taken_back)
            row = {name: back[name] for name in names} | {"_kind": row["_kind"]}
        rows.append(row)
    return rows or commit_of(source, family, key, added)


def row_of(source: random.Random, family: Family) -> dict:
    """Draw a row, with its kind."""
    row: dict[str, Any] = {"p": source.choice(PARTITIONS)} if family.partitioned else {}
    row["k"] = source.choice(KEYS)
    for name, text in family.columns.items():
        values = family.values.get(name, VALUES[text])
        row[name] = None if source.random() < NULLS else source.choice(values)
    for sequence, columns in family.groups.items():
        if row[sequence] is None:
            row |= dict.fromkeys(columns)
    row["_kind"] = source.choices(list(family.kinds), list(family.kinds.values()))[0]
    return row

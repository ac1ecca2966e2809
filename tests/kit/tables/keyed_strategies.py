"""Primary-key tables, rows and filters to draw, for the tests that compare tables with a model."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from tests.kit.tables.merge_rows import KINDS, Row

TEXTS = ["", "a", "b", "ab", "é", "a\0", "\U0001f600"]
NUMBERS = st.integers(-2, 5)

# Types of key columns, and few values of each, so that keys meet.
KEY_TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int64": (pa.int64(), [0, 1, 2, 3, -1, 2**63 - 1, -(2**63)]),
    "int32": (pa.int32(), [0, 1, 2, 3, -1, 2**31 - 1]),
    "string": (pa.string(), TEXTS),
    "date": (pa.date32(), [dt.date(1969, 12, 31) + dt.timedelta(days) for days in range(5)]),
    "decimal": (
        pa.decimal128(9, 2),
        list(map(Decimal, ["-1.01", "-0.01", "0.00", "2.50"])),
    ),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", b"a", b"\xff"]),
    "bool": (pa.bool_(), [False, True]),
}
KEYS: list[dict[str, str]] = [
    *({"k": name} for name in KEY_TYPES),
    {"k": "int64"},
    {"p": "string", "k": "int32"},
    {"p": "string", "k": "int32"},
    {"k": "int64", "p": "bool"},
]

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "a": (pa.int32(), [None, 0, 1, 2, 7]),
    "b": (pa.string(), [None, *TEXTS[:4]]),
    "c": (pa.int64(), [None, -3, 0, 4]),
    "s": (pa.int64(), [None, 1, 2, 3]),
    "t": (pa.int32(), [None, 1, 2]),
}
ADDED: tuple[pa.DataType, list[Any]] = (pa.int64(), [None, 5, 6])
"""Columns that are added later."""
ADDED_FUNCTIONS = [None, "last_value", "max", "first_value", "sum"]
"""Their functions in aggregated tables; None: the default one."""
BY_SEQUENCE = ("last_value", "max", "sum")
"""Those that are exact where rows are in the order of a sequence."""


@dataclass(frozen=True)
class Engine:
    """A merge engine with its settings.

    Attributes
    ----------
    kinds
        Of the changes that it takes.
    fixed
        Columns that its settings name, which stay as they are.
    removes
        Whether rows can be deleted, and with them updated.
    updates
        Whether rows can be updated.
    takes_keys
        Whether keys can be deleted, or be taken as deletions that are ignored.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    kinds: tuple[str, ...] = tuple(KINDS)
    fixed: tuple[str, ...] = ()
    removes: bool = False
    updates: bool = False
    takes_keys: bool = True


ADDITIONS = ("+I", "+U")


def _aggregation(functions: Mapping[str, str], **settings: str) -> dict[str, str]:
    named = {f"fields.{name}.aggregate_function": each for name, each in functions.items()}
    return {"merge_engine": "aggregation", **named, **settings}


ENGINES: dict[str, Engine] = {
    "deduplicate": Engine(removes=True, updates=True),
    "deduplicate, ignoring deletions": Engine({"ignore_delete": "true"}, updates=True),
    "deduplicate by sequence": Engine(
        {"sequence.field": "s"}, fixed=("s",), removes=True, updates=True
    ),
    "deduplicate by two sequences, descending": Engine(
        {"sequence.field": "s,t", "sequence.field.sort_order": "descending"},
        fixed=("s", "t"),
        removes=True,
        updates=True,
    ),
    "first row": Engine({"merge_engine": "first_row"}, ADDITIONS, takes_keys=False),
    "first row, ignoring deletions": Engine({"merge_engine": "first_row", "ignore_delete": "true"}),
    "partial update": Engine({"merge_engine": "partial_update"}, ADDITIONS, takes_keys=False),
    "partial update with removal": Engine(
        {
            "merge_engine": "partial_update",
            "partial_update.remove_record_on_delete": "true",
        },
        removes=True,
        updates=True,
    ),
    "partial update with sequence groups": Engine(
        {
            "merge_engine": "partial_update",
            "fields.s.sequence_group": "a",
            "fields.t.sequence_group": "c",
            "fields.c.aggregate_function": "sum",
        },
        fixed=("s", "t", "a", "c"),
    ),
    "partial update with removal by a sequence group": Engine(
        {
            "merge_engine": "partial_update",
            "fields.s.sequence_group": "a",
            "fields.t.sequence_group": "c",
            "partial_update.remove_record_on_sequence_group": "t",
        },
        fixed=("s", "t", "a", "c"),
    ),
    "aggregation": Engine(
        _aggregation({"a": "max", "b": "listagg", "c": "sum", "s": "first_value", "t": "min"}),
        ADDITIONS,
        takes_keys=False,
        fixed=("a", "b", "c", "s", "t"),
    ),
    "aggregation with retractions": Engine(
        _aggregation({"a": "last_value", "c": "sum"}), takes_keys=False, fixed=("a", "c")
    ),
    "aggregation with removal": Engine(
        _aggregation(
            {"a": "first_non_null_value", "b": "listagg", "c": "sum"},
            **{
                "aggregation.remove_record_on_delete": "true",
                "fields.a.ignore_retract": "true",
                "fields.b.ignore_retract": "true",
                "fields.b.distinct": "true",
            },
        ),
        fixed=("a", "b", "c"),
        removes=True,
        updates=True,
    ),
    "aggregation by sequence": Engine(
        _aggregation(
            {"a": "max", "b": "min", "c": "sum", "t": "last_value"}, **{"sequence.field": "s"}
        ),
        ADDITIONS,
        takes_keys=False,
        fixed=("a", "b", "c", "s", "t"),
    ),
}

MARKING = {"deletion_vectors.enabled": "true"}
INLINE = {"compaction": "inline"}
SETTINGS = [
    *({}, MARKING, MARKING | {"deletion_vectors.merge_on_read": "false"}),
    *(INLINE, MARKING | INLINE, INLINE | {"full_compaction.delta_commits": "2"}),
    {"force_lookup": "true", "lookup_compact": "gentle", "lookup_compact.max_interval": "2"},
    {"compaction.optimization_interval": "1 ms"},
]


def drawn_settings() -> st.SearchStrategy[dict[str, str]]:
    """Draw settings of compaction, and what records changes."""
    producers = st.sampled_from(["none", "lookup", "full_compaction"])
    retained = {"changelog.num_retained": "8"}
    return st.builds(
        lambda settings, producer: {**settings, **retained, "changelog_producer": producer},
        st.sampled_from(SETTINGS),
        producers,
    )


def allowed(properties: dict[str, str]) -> dict[str, str]:
    """Return settings with a producer of changelogs that the others allow."""
    is_marking = properties.get("deletion_vectors.enabled") == "true"
    is_full = properties["changelog_producer"] == "full_compaction"
    if is_full and (is_marking or properties.get("merge_engine") == "first_row"):
        return {**properties, "changelog_producer": "lookup"}
    return properties


Predicate = Callable[[Row], bool]


@dataclass(frozen=True)
class Condition:
    """A filter that the model can be asked too."""

    expression: pc.Expression
    selects: Predicate
    columns: frozenset[str]


_COMPARISONS = {"==": operator.eq, "<=": operator.le, ">=": operator.ge}


def _leaf(name: str, value: Any, comparison: str) -> Condition:
    """Compare a column with a value; nothing compares with null."""
    column = pc.field(name)
    if value is None:
        return Condition(column.is_null(), lambda row: row[name] is None, frozenset({name}))
    if isinstance(value, bool):
        comparison = "=="
    compare = _COMPARISONS[comparison]

    def selects(row: Row) -> bool:
        return row[name] is not None and bool(compare(row[name], value))

    return Condition(compare(column, value), selects, frozenset({name}))


def _one_of(name: str, values: list[Any]) -> Condition:
    expression = pc.field(name).isin(values)
    return Condition(expression, lambda row: row[name] in values, frozenset({name}))


def _both(one: Condition, other: Condition) -> Condition:
    return Condition(
        one.expression & other.expression,
        lambda row: one.selects(row) and other.selects(row),
        one.columns | other.columns,
    )


def _either(one: Condition, other: Condition) -> Condition:
    return Condition(
        one.expression | other.expression,
        lambda row: one.selects(row) or other.selects(row),
        one.columns | other.columns,
    )


def conditions(columns: Mapping[str, list[Any]]) -> st.SearchStrategy[Condition]:
    """Draw a filter on columns, of which values are given."""
    comparisons = st.sampled_from(sorted(_COMPARISONS))

    def about(name: str) -> st.SearchStrategy[Condition]:
        known = st.sampled_from([value for value in columns[name] if value is not None])
        several = st.lists(known, min_size=1, max_size=3)
        one = st.builds(_leaf, st.just(name), st.sampled_from(columns[name]), comparisons)
        return one | st.builds(_one_of, st.just(name), several)

    leaf = st.sampled_from(sorted(columns)).flatmap(about)
    return leaf | st.builds(_both, leaf, leaf) | st.builds(_either, leaf, leaf)

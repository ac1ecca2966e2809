"""Clauses of a merge, each with the same in Python, and the rows that they leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

import fermion
from fermion_table import Table, lit

Row = dict[str, Any]
SCHEMA = pa.schema(
    [("id", pa.int64()), ("g", pa.string()), ("v", pa.int64()), ("t", pa.list_(pa.int8()))]
)

SOURCE = pa.schema(
    [
        ("id", pa.int32()),
        ("g", pa.dictionary(pa.int8(), pa.string())),
        ("v", pa.int64()),
        ("t", pa.large_list(pa.int8())),
        ("op", pa.string()),
    ]
)

source, target = fermion.col("source.v"), fermion.col("target.v")


def v(row: Row | None) -> Any:
    return row["v"] if row else None


# Each condition with its answer in Python: SQL's NULL counts as no.
OF_SOURCE: list[tuple[Any, Callable[[Row | None, Row | None], bool]]] = [
    ("source.op = 'd'", lambda t, s: s["op"] == "d"),
    (source > 1, lambda t, s: v(s) is not None and v(s) > 1),
]

OF_TARGET: list[tuple[Any, Callable[[Row | None, Row | None], bool]]] = [
    ("target.v < 2 OR target.v IS NULL", lambda t, s: v(t) is None or v(t) < 2),
    (target.isin([0, 3]), lambda t, s: v(t) in (0, 3)),
    (pc.field("target", "v") * 2 > 3, lambda t, s: v(t) is not None and v(t) * 2 > 3),
]

OF_BOTH: list[tuple[Any, Callable[[Row | None, Row | None], bool]]] = [
    *OF_SOURCE,
    *OF_TARGET,
    (
        pc.field("source", "v") > pc.field("target", "v"),
        lambda t, s: None not in (v(t), v(s)) and v(s) > v(t),
    ),
]


def total(rows: pa.RecordBatch) -> pa.Array:
    sides = [pc.struct_field(rows.column(side), "v") for side in ("target", "source")]
    return pc.add(*sides)


# What is set, with the same in Python.
TAKE_ALL = (None, lambda t, s: {name: s[name] for name in SCHEMA.names})
SETS: list[tuple[Any, Callable[[Row, Row], Row]]] = [
    TAKE_ALL,
    ({"v": "source.v"}, lambda t, s: {**t, "v": v(s)}),
    ({"v": total}, lambda t, s: {**t, "v": None if None in (v(t), v(s)) else v(t) + v(s)}),
    ({"v": None, "g": "target.g"}, lambda t, s: {**t, "v": None}),
    (
        {"t": fermion.col("source", "t"), "g": lit("moved")},
        lambda t, s: {**t, "t": s["t"], "g": "moved"},
    ),
    (
        {"v": pc.field("target", "v") + 1, "t": [7]},
        lambda t, s: {**t, "v": None if v(t) is None else v(t) + 1, "t": [7]},
    ),
]

ALONE_SETS = [
    ({"v": -1}, lambda t, s: {**t, "v": -1}),
    ({"g": "target.g", "t": None}, lambda t, s: {**t, "t": None}),
]

EMPTY = dict.fromkeys(SCHEMA.names)
VALUES = [
    TAKE_ALL,
    ({"id": "source.id", "v": 5}, lambda t, s: {**EMPTY, "id": s["id"], "v": 5}),
    (
        {"g": fermion.col("source.op"), "v": pc.field("source", "v") + 1},
        lambda t, s: {**EMPTY, "g": s["op"], "v": None if v(s) is None else v(s) + 1},
    ),
]


@dataclass
class Step:
    """A clause: how it is added, which rows it is about, and the same in Python."""

    method: str
    values: tuple[Any, Callable[[Row, Row], Row]] | None
    condition: tuple[Any, Callable[[Row | None, Row | None], bool]] | None

    def add_to(self, builder: Any) -> None:
        arguments = [] if self.values is None else [self.values[0]]
        condition = None if self.condition is None else self.condition[0]
        getattr(builder, self.method)(*arguments, condition=condition)

    def takes(self, t: Row | None, s: Row | None) -> bool:
        return self.condition is None or self.condition[1](t, s)


def steps_of(
    methods: dict[str, Any], conditions: list[Any], last: st.SearchStrategy[bool]
) -> st.SearchStrategy[list[Step]]:
    """Clauses of one case, of which only the last one may take every row."""
    one = st.sampled_from(sorted(methods)).flatmap(
        lambda method: st.builds(
            Step,
            st.just(method),
            st.none() if methods[method] is None else st.sampled_from(methods[method]),
            st.sampled_from(conditions),
        )
    )

    def opened(steps: list[Step], is_open: bool) -> list[Step]:
        if steps and is_open:
            steps[-1].condition = None
        return steps

    return st.builds(opened, st.lists(one, max_size=3), last)


CLAUSES = st.tuples(
    steps_of({"when_matched_update": SETS, "when_matched_delete": None}, OF_BOTH, st.booleans()),
    steps_of({"when_not_matched_insert": VALUES}, OF_SOURCE, st.booleans()),
    steps_of(
        {
            "when_not_matched_by_source_update": ALONE_SETS,
            "when_not_matched_by_source_delete": None,
        },
        OF_TARGET,
        st.booleans(),
    ),
).filter(any)

NUMBERS = st.one_of(st.none(), st.integers(0, 4))
GROUPS = st.sampled_from([None, "a", "b"])
LISTS = st.one_of(st.none(), st.lists(st.integers(0, 3), max_size=2))


class Repeated(Exception):
    """Several rows of the source for a row of the target."""


def expected(rows: list[Row], source: list[Row], on: list[str], clauses: Any) -> Any:
    """The rows after a merge, and how many were inserted, updated and deleted."""
    matched, not_matched, alone = clauses
    after: list[Row] = []
    counts = [0, 0, 0]
    found: set[int] = set()

    def act(step: Step, row: Row, s: Row | None) -> None:
        if step.values is not None:
            after.append(step.values[1](row, s))  # type: ignore[arg-type]
        counts[1 if step.values is not None else 2] += 1

    for row in rows:
        pairs = [
            number
            for number, s in enumerate(source)
            if all(row[name] is not None and row[name] == s[name] for name in on)
        ]
        found.update(pairs)
        acting = []
        for number in pairs:
            step = next((step for step in matched if step.takes(row, source[number])), None)
            acting += [] if step is None else [(step, number)]
        if len(acting) > 1:
            raise Repeated
        lonely = next((step for step in alone if step.takes(row, None)), None)
        if acting:
            act(acting[0][0], row, source[acting[0][1]])
        elif not pairs and lonely is not None:
            act(lonely, row, None)
        else:
            after.append(row)
    for number, s in enumerate(source):
        step = next((step for step in not_matched if step.takes(None, s)), None)
        if number not in found and step is not None:
            after.append(step.values[1](EMPTY, s))
            counts[0] += 1
    return after, tuple(counts)


def counted(rows: list[Row]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


def rows_of(table: Table) -> list[Row]:
    return table.scan().to_arrow().to_pylist()

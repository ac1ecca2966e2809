"""Changes of a schema, and the values that rows have afterwards."""

from __future__ import annotations

import datetime

import pyarrow as pa

START = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("a", pa.int8()),
        ("s", pa.struct([("x", pa.int16()), ("t", pa.string())])),
        ("l", pa.list_(pa.struct([("q", pa.float32())]))),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("z", pa.null()),
    ]
)

ROWS = [
    {"id": 1, "a": 1, "s": {"x": 1, "t": "p"}, "l": [{"q": 1.5}, None], "m": [("k", 1)], "z": None},
    {"id": 2, "a": None, "s": None, "l": None, "m": None, "z": None},
    {"id": 3, "a": -3, "s": {"x": None, "t": None}, "l": [], "m": [], "z": None},
]


# Each change: what is done, and what becomes of a row. The result is compared as a whole, so
# every column that a change does not name must stay as it was.
CHANGES = {
    "add": (
        lambda t: t.add_columns({"n": pa.int64()}),
        lambda row: {**row, "n": None},
    ),
    "add with default": (
        lambda t: t.add_columns({"n": pa.date32()}, defaults={"n": datetime.date(2024, 1, 1)}),
        lambda row: {**row, "n": datetime.date(2024, 1, 1)},
    ),
    "add not null with default": (
        lambda t: t.add_columns(
            pa.schema([pa.field("n", pa.string(), nullable=False)]), defaults={"n": "d"}
        ),
        lambda row: {**row, "n": "d"},
    ),
    "add into a struct": (
        lambda t: t.update_schema().add_column(("s", "y"), pa.int8(), default=7),
        lambda row: {**row, "s": row["s"] and {**row["s"], "y": 7}},
    ),
    "add into a list's struct": (
        lambda t: t.update_schema().add_column(("l", "element", "y"), pa.int8()),
        lambda row: {
            **row,
            "l": row["l"] and [each and {**each, "y": None} for each in row["l"]],
        },
    ),
    "drop": (
        lambda t: t.drop_columns(["a"]),
        lambda row: {key: value for key, value in row.items() if key != "a"},
    ),
    "drop from a struct": (
        lambda t: t.drop_columns(["s.x"]),
        lambda row: {**row, "s": row["s"] and {"t": row["s"]["t"]}},
    ),
    "drop and add the name again": (
        lambda t: t.update_schema().drop_column("a").add_column("a", pa.int8()),
        lambda row: {**{key: row[key] for key in row if key != "a"}, "a": None},
    ),
    "rename": (
        lambda t: t.rename_column("a", "b"),
        lambda row: {"b" if key == "a" else key: value for key, value in row.items()},
    ),
    "swap names": (
        lambda t: (
            t.update_schema()
            .rename_column("a", "tmp")
            .rename_column("id", "a")
            .rename_column("tmp", "id")
        ),
        lambda row: {"a": row["id"], "id": row["a"], **{k: row[k] for k in ("s", "l", "m", "z")}},
    ),
    "rename in a struct": (
        lambda t: t.rename_column("s.x", "y"),
        lambda row: {**row, "s": row["s"] and {"y": row["s"]["x"], "t": row["s"]["t"]}},
    ),
    "rename in a list's struct": (
        lambda t: t.rename_column("l.element.q", "r"),
        lambda row: {
            **row,
            "l": row["l"] and [each and {"r": each["q"]} for each in row["l"]],
        },
    ),
    "move": (
        lambda t: t.update_schema().move_first("m").move_after("id", "s"),
        lambda row: {key: row[key] for key in ("m", "a", "s", "id", "l", "z")},
    ),
    "move in a struct": (
        lambda t: t.update_schema().move_before("s.t", "x"),
        lambda row: {**row, "s": row["s"] and {"t": row["s"]["t"], "x": row["s"]["x"]}},
    ),
    "comment": (lambda t: t.alter_column("a", comment="why"), lambda row: row),
    "widen": (lambda t: t.alter_column("a", type=pa.int64()), lambda row: row),
    "widen in a struct": (lambda t: t.alter_column("s.x", type=pa.int32()), lambda row: row),
    "widen in a list's struct": (
        lambda t: t.alter_column("l.element.q", type=pa.float64()),
        lambda row: row,
    ),
    "widen a map": (
        lambda t: t.alter_column("m", type=pa.map_(pa.large_string(), pa.int64())),
        lambda row: row,
    ),
    "widen null": (lambda t: t.alter_column("z", type=pa.struct([("w", pa.int8())])), lambda r: r),
    "make nullable": (lambda t: t.alter_column("id", nullable=True), lambda row: row),
    "nothing": (lambda t: None, lambda row: row),
}


def carry_out(change, table):
    done = change(table)
    if hasattr(done, "__exit__"):
        done.__exit__(None, None, None)

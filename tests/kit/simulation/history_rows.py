"""The rows that the operations of a history leave, carried out one after the other on a dict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rows = tuple[tuple[Any, ...], ...]
"""Pairs of key and value, sorted; rows with computed values have these as a third part: pairs of
the column, in the order of the commits that added them, and the value."""
COMPUTED = "computed by "
"""What names of columns with computed values begin with."""

Fold = Callable[[Any, Any], Any]
FOLDS: dict[str, Fold] = {
    "deduplicate": lambda old, new: new,
    "newest": lambda old, new: new if old is None or new >= old else old,
    "sum": lambda old, new: new + (old or 0),
    "fill": lambda old, new: old if new is None else new,
    "first": lambda old, new: new if old is None else old,
}
"""What becomes of a key's value, by the set-up of a primary-key table: see `keyed_simulation`."""


def rows_after(rows: Rows, operation: dict[str, Any]) -> Rows:
    """The rows after an operation; of one of a primary-key table, whose rows have keys in ``k``."""
    key, new = operation.get("key"), tuple(map(tuple, operation.get("rows", ())))
    match operation["kind"]:
        case "append":
            return tuple(sorted((*rows, *new)))
        case "overwrite":
            return tuple(sorted((*(row for row in rows if row[0] != key), *new)))
        case "delete":
            return tuple(row for row in rows if row[0] != key)
        case "update" | "fill":
            value = operation["value"]
            return tuple(
                sorted((k, value if k == key else v, *computed) for k, v, *computed in rows)
            )
        case "compute":
            column, seen = COMPUTED + operation["of"], operation["seen"]
            return tuple(
                (k, v, (*(computed[0] if computed else ()), (column, 2 * v)))
                if k in seen
                else (k, v, *computed)
                for k, v, *computed in rows
            )
        case "upsert" | "replace":
            return _upserted({k: v for k, v in rows if k != key}, operation)
        case "merge":
            known = dict(new)
            return tuple((k, known.get(k, v)) for k, v in rows)
        case "remove" | "merge and delete":
            keys = operation.get("keys") or [k for k, *_ in new]
            return tuple(row for row in rows if row[0] not in keys)
    return rows


def _upserted(rows: dict[str, Any], operation: dict[str, Any]) -> Rows:
    """The rows by key after changes of key, value and maybe kind, one after the other."""
    setup = operation.get("set-up", "deduplicate")
    for key, value, *kind in operation["rows"]:
        if kind and kind[0] == "-U" and setup == "sum":
            rows[key] = (rows.get(key) or 0) - value
        elif kind and kind[0][0] == "-":
            rows.pop(key, None)
        else:
            rows[key] = FOLDS[setup](rows.get(key), value)
    return tuple(sorted(rows.items()))


def image_of(key: str) -> bytes:
    """The image of each row of a key, in tables that have images."""
    return key.encode() * 500

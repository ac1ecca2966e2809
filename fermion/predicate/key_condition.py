"""Filters by a key of a map: on whole maps, or on the column of the key where a file has one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from fermion.columns.maps import Key, has_shreddable_keys, looked_up, parse_key, split_key_name
from fermion.columns.types import strip_wrappers
from fermion.exports import dataclass
from fermion.predicate.evaluate import evaluate
from fermion.predicate.expression import VALUE, Computed, Expression, Path


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class KeyCondition(Computed):
    """A filter of the value of a key, computed from the map.

    Attributes
    ----------
    inner
        The filter, of a column at `VALUE`.
    key
        Which value that is.
    """

    inner: Expression
    key: Key


def key_condition(
    node: Expression,
    path: Path,
    schema: pa.Schema,
    bind_leaf: Callable[[Expression, Path, pa.DataType], Expression],
    where: str,
) -> KeyCondition | None:
    """A comparison with the value of a key of a map; None where the path leads into no map.

    bind_leaf: Binds the comparison to a path of a type.
    Raises InvalidArgumentError: The key is no value of the type of the map's keys.
    """
    named = len(path) == 1 and not schema.get_all_field_indices(path[0])
    pair = (split_key_name(path[0]) if named else None) or path
    ordinals = schema.get_all_field_indices(pair[0])
    if len(pair) != 2 or len(ordinals) != 1:
        return None
    dtype = strip_wrappers(schema.field(ordinals[0]).type)
    if not has_shreddable_keys(dtype):
        return None
    key = parse_key(dtype, pair[1], f"{where}: column {pair[0]!r}")
    inner = bind_leaf(replace(node, path=VALUE), VALUE, dtype.item_type)  # type: ignore[type-var]
    return KeyCondition(partial(_of_key, inner, key), (pair[:1],), node.to_sql(), inner, key)


def _of_key(inner: Expression, key: Key, maps: pa.MapArray) -> Any:
    """Whether each map's value of a key matches: a ``pyarrow.BooleanArray``."""
    return evaluate(inner, pa.record_batch([looked_up(maps, key)], [VALUE[0]]))

"""Pruning: which rows a filter may select, and which it must, by statistics alone.

A leaf of the filter is asked of all units (pages, chunks, files) at once. Over a unit's non-null
values it answers twice: may any be TRUE (never wrongly no), and are all TRUE (never wrongly yes).
Nulls, NaNs and NOT follow from those two, and the combination is set algebra on row ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.ranges import RowRanges
from fermion.columns.types import Order, leaf_type, strip_wrappers
from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import NamedTuple, dataclass
from fermion.layout import INT64_MAX, INT64_MIN, ChunkFlag
from fermion.predicate.expression import (
    And,
    BooleanColumn,
    Comparison,
    Constant,
    Expression,
    IsIn,
    IsNan,
    IsNull,
    Not,
    Or,
    Path,
    StartsWith,
    as_predicate,
)
from fermion.predicate.literals import equal_raws, family, literal_family, resolve
from fermion.statistics.keys import KEY_BYTES, bytes_key, plain_maximums, value_key


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """What is known of one column in each of some units: pages, chunks or files.

    Attributes
    ----------
    boundaries
        ``int64``, shape (u + 1,): unit i is rows ``boundaries[i]`` to ``boundaries[i + 1]``.
    min, max
        ``int64``, shape (u,): keys (see `fermion.statistics.bounds`).
    null_count
        ``int64``, shape (u,): rows where the filter sees NULL, so those where a struct above is
        NULL count too; -1 where that is not known.
    flags
        ``uint32``, shape (u,): `ChunkFlag` bits. Without HAS_MINMAX the bounds are unknown.
    type
        The type of the column's values in these units.
    may_contain
        Asked whether raw values (see `literals.Resolved`) may be in the units: bool, shape
        (values,) for all of them together, (values, u) for each. A bloom filter, say; None where
        nothing of the kind is known.
    """

    boundaries: np.ndarray
    min: np.ndarray
    max: np.ndarray
    null_count: np.ndarray
    flags: np.ndarray
    type: pa.DataType
    may_contain: Callable[[Sequence[Any]], np.ndarray] | None = None

    __repr__ = short_repr


Lookup = Callable[[Path], Bounds | None]


def ranges_that_may_match(expression: Expression, lookup: Lookup, num_rows: int) -> RowRanges:
    """Rows outside of which no row is TRUE.

    Parameters
    ----------
    lookup
        Gives the bounds of a column by its path, over rows 0 to ``num_rows``; None where nothing
        is known of it. Columns may be cut into units differently.
    num_rows
        Rows in all.
    """
    return _Pruning(lookup, num_rows, must=False).ranges(as_predicate(expression), True)


def ranges_that_must_match(expression: Expression, lookup: Lookup, num_rows: int) -> RowRanges:
    """Rows that are all TRUE, so that none of them needs the filter; as above otherwise."""
    return _Pruning(lookup, num_rows, must=True).ranges(as_predicate(expression), True)


def ranges_that_match(
    expression: Expression, lookup: Lookup, num_rows: int
) -> tuple[RowRanges, RowRanges]:
    """Rows that may match, and those of them that must, as above; each leaf is settled once."""
    node = as_predicate(expression)
    may = _Pruning(lookup, num_rows, must=False)
    rows = may.ranges(node, True)
    if not rows:
        return rows, rows
    must = _Pruning(lookup, num_rows, must=True)
    must.units, must.settled = may.units, may.settled
    return rows, must.ranges(node, True)


class _Settled(NamedTuple):
    """For each unit (``bool``, shape (u,)): may a row be TRUE or FALSE, must all rows be?"""

    may_true: np.ndarray
    may_false: np.ndarray
    must_true: np.ndarray
    must_false: np.ndarray


class _Units:
    """Bounds of one column, ready to be compared."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.storage = strip_wrappers(bounds.type)
        leaf = leaf_type(self.storage)
        self.order = leaf[1] if leaf else Order.NONE
        flags, low, high = bounds.flags, bounds.min, bounds.max
        known = (flags & ChunkFlag.HAS_MINMAX) != 0
        known &= (low != INT64_MIN) | (high != INT64_MAX)
        self.unknown = ~known if self.order is not Order.NONE else np.ones(len(flags), bool)
        self.filled = ~self.unknown & (low <= high)
        self.min_exact = (flags & ChunkFlag.MIN_EXACT) != 0
        self.max_exact = (flags & ChunkFlag.MAX_EXACT) != 0
        self.low, self.high = low, high
        if self.order is Order.BYTES:
            self.high, self.max_exact = plain_maximums(high, self.max_exact)
        if self.order is Order.FLOAT:
            nan_flags = flags & (ChunkFlag.HAS_NAN | ChunkFlag.NAN_KNOWN)
            self.nan_free = nan_flags == ChunkFlag.NAN_KNOWN
        else:
            self.nan_free = np.ones(len(flags), bool)
        no_value = ~self.unknown & ~self.filled & self.nan_free
        self.all_null = no_value | (bounds.null_count == np.diff(bounds.boundaries))
        self.no_null = bounds.null_count == 0

    def settle(self, any_true: np.ndarray, all_true: np.ndarray) -> _Settled:
        """A leaf that is NULL where the column is, from its answers over the non-null values."""
        return _Settled(
            may_true=any_true & ~self.all_null,
            may_false=~all_true & ~self.all_null,
            must_true=all_true & self.no_null,
            must_false=~any_true & self.no_null,
        )

    def contain(self, some: np.ndarray, raws: Sequence[Any]) -> np.ndarray:
        """``some``, but False for units that none of the raw values is in."""
        ask = self.bounds.may_contain
        if ask is None or not some.any():
            return some
        return some & np.any(ask(raws), axis=0)

    def constant(self, truth: bool) -> _Settled:
        """A leaf that is the same for every value, and NULL where the column is."""
        every = np.full(len(self.unknown), truth)
        return self.settle(every, every)

    def nothing_known(self) -> _Settled:
        """A leaf that statistics cannot settle."""
        return self.settle(np.ones(len(self.unknown), bool), np.zeros(len(self.unknown), bool))

    def never(self) -> _Settled:
        """A leaf that is NULL for every row."""
        no = np.zeros(len(self.unknown), bool)
        return _Settled(no, no, no, no)


class _Pruning:
    """One question (may or must) about one filter."""

    def __init__(self, lookup: Lookup, num_rows: int, *, must: bool) -> None:
        self.lookup = lookup
        self.num_rows = num_rows
        self.must = must
        self.units: dict[Path, _Units | None] = {}
        self.settled: dict[int, _Settled] = {}  # by the id of a leaf of the filter

    def ranges(self, node: Expression, truth: bool) -> RowRanges:
        """The rows that may be, or must be, TRUE (or FALSE, where ``truth`` is false)."""
        match node:
            case Not(operand=operand):
                return self.ranges(operand, not truth)
            case And(operands=operands):
                return self._combined(operands, truth, intersect=truth)
            case Or(operands=operands):
                return self._combined(operands, truth, intersect=not truth)
            case Constant(value=value):
                return self._everything(value is truth)
        return self._leaf(node, truth)

    def _combined(
        self, operands: tuple[Expression, ...], truth: bool, *, intersect: bool
    ) -> RowRanges:
        result = self.ranges(operands[0], truth)
        for operand in operands[1:]:
            # An empty intersection or a full union cannot change: spare the other columns.
            if result.total == (0 if intersect else self.num_rows):
                break
            other = self.ranges(operand, truth)
            result = result & other if intersect else result | other
        return result

    def _everything(self, wanted: bool) -> RowRanges:
        return RowRanges.all(self.num_rows) if wanted else RowRanges.empty()

    def _leaf(self, node: Expression, truth: bool) -> RowRanges:
        path = getattr(node, "path", None)
        units = self._units(path) if path is not None else None
        if units is None:
            return self._everything(not self.must)
        settled = self.settled.get(id(node))
        if settled is None:
            settled = self.settled[id(node)] = _settle(node, units)
        if self.must:
            wanted = settled.must_true if truth else settled.must_false
        else:
            wanted = settled.may_true if truth else settled.may_false
        return RowRanges.from_units(units.bounds.boundaries, wanted)

    def _units(self, path: Path) -> _Units | None:
        if path not in self.units:
            bounds = self.lookup(path)
            if bounds is not None and int(bounds.boundaries[-1]) != self.num_rows:
                raise InvalidArgumentError(
                    f"bounds of {path!r} cover {int(bounds.boundaries[-1])} rows; "
                    f"expected {self.num_rows}"
                )
            self.units[path] = None if bounds is None else _Units(bounds)
        return self.units[path]


def _settle(node: Expression, units: _Units) -> _Settled:
    match node:
        case IsNull():
            return _Settled(
                may_true=~units.no_null,
                may_false=~units.all_null,
                must_true=units.all_null,
                must_false=units.no_null,
            )
        case BooleanColumn():
            return _comparison(units, "==", True)
        case Comparison(operator=operator, value=value):
            return _comparison(units, operator, value)
        case IsIn(values=values):
            return _is_in(units, values)
        case IsNan():
            any_value = units.unknown | units.filled
            return units.settle(~units.nan_free, np.zeros_like(any_value))._replace(
                may_false=any_value & ~units.all_null
            )
        case StartsWith(prefix=prefix):
            return _starts_with(units, prefix)
    return units.nothing_known()


class _Key(NamedTuple):
    """A literal among the keys.

    low, high: Keys of the values that equal the literal, both inclusive: one, or two for a zero
        float.
    is_crisp: Whether only they have these keys, and values before the literal have lower ones.
    """

    low: int
    high: int
    is_crisp: bool


def _key(raw: Any, order: Order, storage: pa.DataType) -> _Key:
    if order is Order.FLOAT and raw == 0:
        return _Key(-1, 0, True)
    key = value_key(raw, order, is_uint64=pat.is_uint64(storage))
    if order is Order.BYTES:
        crisp = len(raw) <= KEY_BYTES and not raw.endswith(b"\0")
    else:
        crisp = order is not Order.DECIMAL or INT64_MIN < raw < INT64_MAX
    return _Key(key, key, crisp)


def bound_key(raw: Any, dtype: pa.DataType, *, is_max: bool) -> int | None:
    """The key of a raw value, for bounds that do not come from a file's statistics.

    Parameters
    ----------
    raw
        See `literals.Resolved`.
    is_max
        Whether it bounds from above: then strings that begin with ``raw`` lie within.

    Returns
    -------
    int or None
        None for NaN, and for types without an order.
    """
    storage = strip_wrappers(dtype)
    leaf = leaf_type(storage)
    if leaf is None or leaf[1] is Order.NONE or raw != raw:
        return None
    if leaf[1] is Order.BYTES:
        return bytes_key(raw, 0xFF if is_max else 0x00)
    key = _key(raw, leaf[1], storage)
    return key.high if is_max else key.low


def _comparison(units: _Units, operator: str, value: Any) -> _Settled:
    if value is not None and literal_family(value) not in (family(units.storage), "null"):
        # Units written before the column's type changed may hold another kind of value.
        return units.never() if pat.is_null(units.storage) else units.nothing_known()
    operator, raw = resolve(operator, value, units.storage)
    if operator == "null":
        return units.never()
    if operator in ("always", "never"):
        return units.constant(operator == "always")
    key = _key(raw, units.order, units.storage)
    low, high = units.low, units.high
    if operator in ("==", "!="):
        some = units.unknown | (units.filled & (low <= key.high) & (high >= key.low))
        every = _all_equal(units, key)
        if operator == "==":
            return units.settle(units.contain(some, [raw]), every)
        return units.settle(~every, ~some & units.filled & units.nan_free)
    some, every = _ordered(units, operator, key)
    return units.settle(
        units.unknown | (units.filled & some), units.filled & units.nan_free & every
    )


def _all_equal(units: _Units, key: _Key) -> np.ndarray:
    exact = units.min_exact & units.max_exact & units.filled & units.nan_free
    return exact & (units.low >= key.low) & (units.high <= key.high) & key.is_crisp


def _ordered(units: _Units, operator: str, key: _Key) -> tuple[np.ndarray, np.ndarray]:
    """Whether some value, and whether every value, is on the wanted side of a literal."""
    low, high = units.low, units.high
    # A truncated maximum equal to the literal's key may belong to a longer string.
    precise = units.max_exact if units.order is Order.BYTES else True
    match operator:
        case "<":
            return (low < key.low) if key.is_crisp else (low <= key.high), high < key.low
        case "<=":
            return low <= key.high, (high < key.low) | ((high <= key.high) & key.is_crisp & precise)
        case ">":
            some = high > key.high if key.is_crisp else high >= key.low
            if units.order is Order.BYTES:
                some = some | ((high >= key.low) & ~units.max_exact)
            return some, low > key.high
    return high >= key.low, (low > key.high) | ((low >= key.low) & key.is_crisp)


class _KeySet(NamedTuple):
    """The literals of an IN list among the keys, in ascending order, and those apart."""

    low: np.ndarray
    high: np.ndarray
    is_crisp: np.ndarray
    has_null: bool
    raws: tuple[Any, ...]


@lru_cache(maxsize=64)
def _key_set(
    values: tuple[Any, ...],
    kinds: tuple[type, ...],  # a float and a Decimal may be equal and mean different decimals
    order: Order,
    storage: pa.DataType,
) -> _KeySet | None:
    """None where a literal cannot be compared with the type."""
    wanted = family(storage)
    known = [value for value in values if value is not None]
    if any(literal_family(value) != wanted for value in known):
        return None
    has_null = len(known) < len(values)
    raws = equal_raws(known, storage)
    if pat.is_integer(storage) and not pat.is_uint64(storage):
        own = np.sort(np.array(raws, np.int64))
        return _KeySet(own, own, np.ones(len(own), bool), has_null, tuple(raws))
    keys = sorted(_key(raw, order, storage) for raw in raws)
    return _KeySet(
        np.array([key.low for key in keys], np.int64),
        np.array([key.high for key in keys], np.int64),
        np.array([key.is_crisp for key in keys], bool),
        has_null,
        tuple(raws),
    )


def _is_in(units: _Units, values: tuple[Any, ...]) -> _Settled:
    if pat.is_null(units.storage):
        return units.never()
    keys = _key_set(values, tuple(map(type, values)), units.order, units.storage)
    if keys is None:
        return units.nothing_known()
    some = np.zeros(len(units.unknown), bool)
    every = some.copy()
    if len(keys.low):
        # The first literal that is not below the unit decides whether any lies within.
        at = np.minimum(np.searchsorted(keys.high, units.low), len(keys.low) - 1)
        low, high = keys.low[at], keys.high[at]
        some = units.unknown | (units.filled & (high >= units.low) & (low <= units.high))
        some = units.contain(some, keys.raws)
        every = units.min_exact & units.max_exact & units.filled & units.nan_free
        every &= (units.low >= low) & (units.high <= high) & keys.is_crisp[at]
    settled = units.settle(some, every)
    if keys.has_null:
        # Where no value equals, IN is NULL: never FALSE.
        no = np.zeros(len(some), bool)
        return settled._replace(may_false=no, must_false=no)
    return settled


def _starts_with(units: _Units, prefix: str | bytes) -> _Settled:
    if pat.is_null(units.storage):
        return units.never()
    if units.order is not Order.BYTES:
        return units.nothing_known()
    text = prefix.encode() if isinstance(prefix, str) else prefix
    first, last = bytes_key(text, 0x00), bytes_key(text, 0xFF)
    some = units.unknown | (units.filled & (units.low <= last) & (units.high >= first))
    every = units.filled & (units.low >= first) & (units.high <= last)
    short = len(text) <= KEY_BYTES and not text.endswith(b"\0")
    return units.settle(some, every & short)

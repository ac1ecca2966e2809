"""How many rows fit in one stripe where a type's own integers number few values.

The rows of a stripe are read as one Arrow array a column. Its dictionary may have no more values
than its indices can number (128 of int8), its runs no more rows than their ends can (32,767 of
int16), wherever in the column they are. Batches that fit one by one need not fit together. Ordered
dictionaries of a stripe have one order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.columns import arrow_buffers, distinct, slots
from fermion.columns.assemble import assemble
from fermion.columns.ordered_dictionaries import Place, StripeOrders, are_identical
from fermion.columns.shred import shred
from fermion.columns.types import Node, column_node, is_list_view
from fermion.exports import dataclass
from fermion.layout import CHUNK_SLOTS_MAX

_Path = tuple[tuple[int, str], ...]
"""Place and name of a top-level column, then of the child, and so on."""


@dataclass(slots=True)
class _Counted:
    """What a stripe holds at one path.

    known: Dictionaries of these whose lengths are counted; they may have values in common.
    """

    rows: int = 0
    arrays: list[pa.Array] = field(default_factory=list)
    known: list[pa.Array] = field(default_factory=list)

    def copy(self) -> _Counted:
        return _Counted(self.rows, list(self.arrays), list(self.known))

    def add(self, array: pa.Array, limit: int) -> int:
        """Count one array more; the sum is exact once it is beyond the limit."""
        if not isinstance(array, pa.DictionaryArray):
            self.rows += len(array)
            return self.rows
        self.arrays.append(array)
        dictionary = array.dictionary[:limit]
        if not any(are_identical(dictionary, each) for each in self.known):
            self.known.append(dictionary)
        count = sum(map(len, self.known))
        if count > limit and len(self.known) > 1:
            union = _union([_used(each) for each in self.arrays])
            self.arrays = [_whole(union, array.type.ordered)]
            self.known, count = [union], len(union)
        return count


class StripeLimits:
    """Counts what a stripe's batches hold of values that narrow integers number.

    limited: Ordinals of the columns for which `is_limited` holds.
    ordered: The trees of the columns whose ordered dictionaries are to be joined, by ordinal.

    Attributes:
    kept: Ordinals of the columns whose arrays are kept until the stripe ends, or the file.
    """

    def __init__(
        self, limited: Iterable[int], ordered: Mapping[int, Node] = MappingProxyType({})
    ) -> None:
        self._columns = list(limited)
        self._orders = StripeOrders(ordered, {})
        self.kept = sorted({*self._columns, *ordered})
        self._counted: dict[_Path, _Counted] = {}

    def begin(self) -> Mapping[Place, pa.Array]:
        """Begin another stripe; the ordered dictionaries of the one before come back."""
        self._counted.clear()
        return self._orders.take()

    def add(self, batches: Iterable[pa.RecordBatch]) -> str | None:
        """Count batches that are to be in the stripe, too.

        Returns: None, or what does not fit: the column and its counts, or that orders differ.
            Nothing is counted then.
        """
        batches = list(batches) if self._columns or self._orders.nodes else ()
        counted = {path: each.copy() for path, each in self._counted.items()}
        for batch in batches:
            for place in self._columns:
                top = ((place, batch.schema.field(place).name),)
                for path, array in _limited_arrays(top, batch.column(place)):
                    limit = _limit(array.type)
                    count = counted.setdefault(path, _Counted()).add(array, limit)
                    if count > limit:
                        return _excess(path, array.type, count, limit)
        wrong = self._orders.add(batches)
        if wrong is None:
            self._counted = counted
        return wrong


def _excess(path: _Path, dtype: pa.DataType, count: int, limit: int) -> str:
    name = ".".join(name for _, name in path)
    if pat.is_dictionary(dtype):
        return (
            f"column {name!r}: {count} dictionary values in one stripe, expected at most {limit}: "
            f"indices of {dtype.index_type} number no more"
        )
    return (
        f"column {name!r}: {count} rows in one stripe, expected at most {limit}: run ends of "
        f"{dtype.run_end_type} number no more"
    )


def _limit(dtype: pa.DataType) -> int:
    """Values of a dictionary, or rows of runs, that a type can number."""
    if pat.is_dictionary(dtype):
        return int(np.iinfo(dtype.index_type.to_pandas_dtype()).max) + 1
    return int(np.iinfo(dtype.run_end_type.to_pandas_dtype()).max)


def is_limited(dtype: pa.DataType) -> bool:
    """Whether a type, or one within it, numbers fewer values than a stripe can have."""
    if isinstance(dtype, pa.BaseExtensionType):
        return is_limited(dtype.storage_type)
    if pat.is_dictionary(dtype) or pat.is_run_end_encoded(dtype):
        return _limit(dtype) < CHUNK_SLOTS_MAX or is_limited(dtype.value_type)
    return any(is_limited(dtype.field(index).type) for index in range(dtype.num_fields))


def _limited_arrays(path: _Path, array: pa.Array) -> Iterator[tuple[_Path, pa.Array]]:
    """The arrays within one that have a limit, and the names that lead to them."""
    if not is_limited(array.type):
        return
    if isinstance(array, pa.ExtensionArray):
        yield from _limited_arrays(path, array.storage)
        return
    if isinstance(array, pa.DictionaryArray | pa.RunEndEncodedArray):
        if _limit(array.type) < CHUNK_SLOTS_MAX:
            yield path, array
        is_dictionary = isinstance(array, pa.DictionaryArray)
        within = array.dictionary if is_dictionary else array.values
        yield from _limited_arrays((*path, (0, "value")), within)
        return
    for place, (name, child) in enumerate(_children(array)):
        yield from _limited_arrays((*path, (place, name)), child)


def _children(array: pa.Array) -> list[tuple[str, pa.Array]]:
    if pat.is_map(array.type):
        return [("key", array.keys), ("value", array.items)]
    if pat.is_struct(array.type):
        names = [array.type.field(index).name for index in range(array.type.num_fields)]
        return [(name, array.field(index)) for index, name in enumerate(names)]
    return [(array.type.field(0).name, _elements(array))]


def _elements(array: pa.Array) -> pa.Array:
    """The elements of lists; where Arrow can't leave out those below nulls, these too."""
    try:
        return array.flatten()
    except pa.ArrowNotImplementedError:  # of some types it can't take rows
        pass
    if pat.is_fixed_size_list(array.type):
        size = array.type.list_size
        return array.values.slice(array.offset * size, len(array) * size)
    if is_list_view(array.type):
        starts = array.offsets.to_numpy().astype(np.int64)
        ends = starts + array.sizes.to_numpy()
        low, high = int(starts.min(initial=0)), int(ends.max(initial=0))
        return array.values.slice(low, high - low)
    offsets = array.offsets
    return array.values.slice(offsets[0].as_py(), offsets[-1].as_py() - offsets[0].as_py())


def _used(array: pa.DictionaryArray) -> pa.Array:
    """The values that indices refer to; of an ordered dictionary all, as they are kept."""
    if array.type.ordered:
        return array.dictionary
    indices = np.unique(arrow_buffers.dictionary_indices(array))
    return array.dictionary.take(pa.array(indices[indices >= 0]))


def _whole(dictionary: pa.Array, ordered: bool) -> pa.DictionaryArray:
    indices = pa.array(np.arange(len(dictionary), dtype=np.int64))
    return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=ordered)


def _union(arrays: Sequence[pa.Array]) -> pa.Array:
    """The distinct values of arrays, counted as those of a column that is read are."""
    node = column_node(pa.field("values", arrays[0].type), where="")
    streams = shred(pa.chunked_array(arrays), node)
    _, first = distinct.codes(node, streams, streams.length)
    return assemble(node, slots.take(node, streams, first))

"""Values of ordered dictionaries, in order: which a stripe has, and the section that holds them.

An ordered dictionary has a meaning of its own: its order, and values that no row has. Columns are
stored as values, so the section ORDERED_DICTIONARIES says what the dictionaries were:

====== ==== ==== =========== ================================================================
offset size type name        meaning
====== ==== ==== =========== ================================================================
0      4    u32  numEntries  entries that follow
4      4    u32  reserved    zero
8      32   ...  entries     ascending by column, node and firstStripe
...    ...  ...  streams     each an Arrow IPC stream, at a multiple of 8
====== ==== ==== =========== ================================================================

An entry:

====== ==== ==== =========== ================================================================
offset size type name        meaning
====== ==== ==== =========== ================================================================
0      4    u32  column      ordinal of the top-level column
4      4    u32  node        ordinal of the VALIDITY stream of the dictionary's node
8      4    u32  firstStripe from this stripe on, up to the next entry of the same node
12     4    u32  reserved    zero
16     8    u64  offset      of the stream, from the start of the section
24     8    u64  length      of the stream, in bytes
====== ==== ==== =========== ================================================================
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.columns import distinct, slots
from fermion.columns.arrow_buffers import dictionary_indices, run_indices
from fermion.columns.assemble import assemble
from fermion.columns.shred import shred
from fermion.columns.types import (
    Node,
    column_node,
    has_ordered,
    is_list_view,
    ordered_type,
    strip_wrappers,
)
from fermion.errors import InvalidFileError, UnsupportedTypeError
from fermion.exports import dataclass
from fermion.layout import ORDERED_ENTRY, ORDERED_HEADER, align

Place = tuple[int, int]
"""A column's ordinal, and a node's: that of its VALIDITY stream."""


def check_ordered(nodes: Iterable[Node], where: str) -> None:
    """Refuse ordered dictionaries whose order a file can't keep.

    Raises UnsupportedTypeError: For one within the values of another.
    """
    for node in nodes:
        for each in node.walk() if has_ordered(node) else ():
            own = ordered_type(each.type)
            if own is not None and _holds_ordered(own.value_type):
                raise UnsupportedTypeError(
                    f"{where}: column {node.name!r}: {each.type}: expected no ordered dictionary "
                    "within the values of another"
                )


def _holds_ordered(dtype: pa.DataType) -> bool:
    if ordered_type(dtype) is not None:
        return True
    storage = strip_wrappers(dtype)
    return any(_holds_ordered(storage.field(at).type) for at in range(storage.num_fields))


def joined_order(known: pa.Array | None, dictionary: pa.Array) -> pa.Array | None:
    """The values of two dictionaries in an order that is right for both.

    known: Distinct values without nulls; None: there are none yet.
    dictionary: Of the same type; nulls and repeated values do not count.
    Returns: Distinct values without nulls: one of the two, which has all values of the other in the
        same order; None where neither has.
    """
    if known is None:
        return _distinct(dictionary)
    if are_identical(dictionary, known):
        return known
    own = _distinct(dictionary)
    longer, shorter = (own, known) if len(own) > len(known) else (known, own)
    places = positions(longer, shorter)
    return longer if (places >= 0).all() and (np.diff(places) > 0).all() else None


def are_identical(values: pa.Array, others: pa.Array) -> bool:
    """Whether two arrays have the same values bit for bit; False, too, if bytes of nulls differ.

    Arrow's ``equals`` takes 0.0 for -0.0.
    """
    if values is others:
        return True
    if not values.equals(others):
        return False
    return not _holds_floats(values.type) or _bytes_of(values).equals(_bytes_of(others))


def _holds_floats(dtype: pa.DataType) -> bool:
    storage = strip_wrappers(dtype)
    if pat.is_floating(storage):
        return True
    return any(_holds_floats(storage.field(at).type) for at in range(storage.num_fields))


def _bytes_of(values: pa.Array) -> pa.Buffer:
    return pa.RecordBatch.from_arrays([values], [""]).serialize()


def _distinct(values: pa.Array) -> pa.Array:
    node = column_node(pa.field("values", values.type))
    streams = shred(values, node)
    _, first = distinct.codes(node, streams, streams.length)
    if len(first) == len(values):
        return values
    return assemble(node, slots.take(node, streams, first))


def positions(entries: pa.Array, values: pa.Array) -> np.ndarray:
    """Where values stand among distinct entries, compared bit for bit.

    Returns: ``int64``, shape (values,): -1 for a value that is no entry.
    """
    node = column_node(pa.field("values", entries.type))
    streams = shred(pa.chunked_array([entries, values], entries.type), node)
    codes, _ = distinct.codes(node, streams, streams.length)
    found = codes[len(entries) :]
    return np.where(found < len(entries), found, -1)


class OrderedDictionaries:
    """The ordered dictionaries of a file: for each stripe the values, in order.

    runs: For each place its first stripes, ascending, and the values from each on.
    """

    def __init__(self, runs: Mapping[Place, Sequence[tuple[int, pa.Array]]] | None = None) -> None:
        self._runs: dict[Place, list[tuple[int, pa.Array]]] = {
            place: list(own) for place, own in (runs or {}).items()
        }

    def add(self, stripe: int, orders: Mapping[Place, pa.Array]) -> None:
        """Note what a stripe has; stripes come in order."""
        for place, values in orders.items():
            own = self._runs.setdefault(place, [])
            if not own or not are_identical(own[-1][1], values):
                own.append((stripe, values))

    def restore(
        self,
        column: int,
        node: Node,
        stripe: int,
        array: pa.Array,
        *,
        where: str,
        seen: np.ndarray | None = None,
    ) -> pa.Array:
        """A column's array of a stripe, its ordered dictionaries as they were when written.

        array: As `assemble` makes it; its dictionaries have the values that rows have.
        seen: ``bool``, shape (n,): values below no null, which need not be in the dictionary; None:
            all.
        Raises InvalidFileError: A row has a value that the dictionary lacks.
        """
        if not has_ordered(node):
            return array
        if isinstance(array, pa.ExtensionArray):
            storage = self.restore(column, node, stripe, array.storage, where=where, seen=seen)
            return pa.ExtensionArray.from_storage(array.type, storage)
        if isinstance(array, pa.RunEndEncodedArray):
            inside = _entries_seen(array, seen)
            values = self.restore(column, node, stripe, array.values, where=where, seen=inside)
            return pa.RunEndEncodedArray.from_arrays(array.run_ends, values, array.type)
        if isinstance(array, pa.DictionaryArray) and not array.type.ordered:
            inside = _entries_seen(array, seen)
            values = self.restore(column, node, stripe, array.dictionary, where=where, seen=inside)
            return pa.DictionaryArray.from_arrays(array.indices, values)
        if isinstance(array, pa.DictionaryArray):
            entries = self._values((column, node.validity), stripe)
            return (
                array
                if entries is None
                else _renumbered(array, entries, f"{where}: column {node.name!r}", seen)
            )
        inside = _seen_below(array, seen)
        children = [
            self.restore(column, child, stripe, below, where=where, seen=inside)
            for child, below in zip(node.children, _children(array), strict=True)
        ]
        own = array.buffers()[: _own_buffers(array.type)]
        return pa.Array.from_buffers(array.type, len(array), own, children=children)

    def _values(self, place: Place, stripe: int) -> pa.Array | None:
        own = self._runs.get(place, [])
        at = bisect_right(own, stripe, key=lambda run: run[0])
        return own[at - 1][1] if at else None

    def selected(self, kept: Sequence[int]) -> OrderedDictionaries:
        """Those of some columns, in another order."""
        places = {before: after for after, before in enumerate(kept)}
        runs = {
            (places[column], node): own
            for (column, node), own in self._runs.items()
            if column in places
        }
        return OrderedDictionaries(runs)

    def joined(self, others: OrderedDictionaries, first: int) -> OrderedDictionaries:
        """These, and those of columns that follow from the ordinal ``first`` on."""
        runs = {(first + column, node): own for (column, node), own in others._runs.items()}
        return OrderedDictionaries({**self._runs, **runs})

    def build(self) -> bytes:
        """The section; empty where there are none."""
        found = [
            (column, node, stripe, values)
            for (column, node), own in sorted(self._runs.items())
            for stripe, values in own
        ]
        if not found:
            return b""
        entries = np.zeros(len(found), ORDERED_ENTRY)
        header = np.zeros(1, ORDERED_HEADER)
        header["numEntries"] = len(found)
        streams = bytearray()
        start = ORDERED_HEADER.itemsize + entries.nbytes
        for entry, (column, node, stripe, values) in zip(entries, found, strict=True):
            data = _to_stream(values)
            entry["column"], entry["node"], entry["firstStripe"] = column, node, stripe
            entry["offset"], entry["length"] = start + len(streams), len(data)
            streams += data + bytes(align(len(data)) - len(data))
        return header.tobytes() + entries.tobytes() + bytes(streams)


def parse_ordered(
    data: memoryview, nodes: Mapping[int, Node] | Sequence[Node], stripes: int, where: str
) -> OrderedDictionaries:
    """The section ORDERED_DICTIONARIES.

    nodes: The tree of each column.
    stripes: How many the file has.
    Raises InvalidFileError.
    """
    runs: dict[Place, list[tuple[int, pa.Array]]] = {}
    last = (-1, -1, -1)
    for entry in _entries(data, where).tolist():
        column, number, stripe, _, offset, length = entry
        if not last < (column, number, stripe) or column >= len(nodes) or stripe >= stripes:
            raise _wrong(where, f"columns below {len(nodes)} and stripes below {stripes}", entry)
        last = (column, number, stripe)
        found = [each for each in nodes[column].walk() if each.validity == number]
        dtype = ordered_type(found[0].type) if found else None
        if dtype is None or offset + length > len(data):
            raise _wrong(where, "the node of an ordered dictionary, and its stream", entry)
        values = _from_stream(data[offset : offset + length], dtype.value_type, where)
        runs.setdefault((column, number), []).append((stripe, values))
    return OrderedDictionaries(runs)


def _entries(data: memoryview, where: str) -> np.ndarray:
    if len(data) < ORDERED_HEADER.itemsize:
        raise _wrong(where, f"at least {ORDERED_HEADER.itemsize} bytes", len(data))
    count = int(np.frombuffer(data, ORDERED_HEADER, 1)["numEntries"][0])
    end = ORDERED_HEADER.itemsize + count * ORDERED_ENTRY.itemsize
    if end > len(data):
        raise _wrong(where, f"{count} entries", f"{len(data)} bytes")
    return np.frombuffer(data[ORDERED_HEADER.itemsize : end], ORDERED_ENTRY)


def _wrong(where: str, expected: str, found: object) -> InvalidFileError:
    return InvalidFileError(f"{where}: ordered dictionaries: expected {expected}; found {found}")


def _to_stream(values: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([values], [""])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _from_stream(data: memoryview, dtype: pa.DataType, where: str) -> pa.Array:
    try:
        with pa.ipc.open_stream(data) as reader:
            table = reader.read_all()
        values = table.column(0).combine_chunks() if table.num_columns == 1 else None
        if values is not None:
            values.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise _wrong(where, f"an Arrow stream of {dtype}", error) from error
    if values is None or values.type != dtype or values.null_count:
        raise _wrong(where, f"values of {dtype} without nulls", table.schema)
    return values


def ordered_arrays(node: Node, array: pa.Array) -> Iterator[tuple[int, pa.DictionaryArray]]:
    """The ordered dictionary arrays within a column's array, and the ordinals of their nodes."""
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif isinstance(array, pa.RunEndEncodedArray):
            array = array.values
        elif isinstance(array, pa.DictionaryArray) and not array.type.ordered:
            array = array.dictionary
        elif isinstance(array, pa.DictionaryArray):
            yield node.validity, array
            return
        else:
            break
    if not any(has_ordered(child) for child in node.children):
        return
    for child, below in zip(node.children, _children(array), strict=True):
        yield from ordered_arrays(child, below)


def runs_of_one_order(table: pa.Table) -> Iterator[pa.Table]:
    """Consecutive rows that have the same ordered dictionaries."""
    nodes = {
        at: node for at, field in enumerate(table.schema) if has_ordered(node := column_node(field))
    }
    if not nodes:
        yield table
        return
    run: list[pa.RecordBatch] = []
    orders: list[pa.Array] = []
    for batch in table.to_batches():
        found = [
            array.dictionary
            for at, node in nodes.items()
            for _, array in ordered_arrays(node, batch.column(at))
        ]
        if run and found != orders:
            yield pa.Table.from_batches(run)
            run = []
        run.append(batch)
        orders = found
    if run:
        yield pa.Table.from_batches(run)


def _children(array: pa.Array) -> list[pa.Array]:
    """The children of a nested array as a column's tree has them; all of their rows."""
    if pat.is_map(array.type):
        fields = [array.type.key_field, array.type.item_field]
        return [pa.StructArray.from_arrays([array.keys, array.items], fields=fields)]
    if pat.is_struct(array.type):
        return [array.field(at) for at in range(array.type.num_fields)]
    return [array.values]


def _own_buffers(dtype: pa.DataType) -> int:
    if pat.is_struct(dtype) or pat.is_fixed_size_list(dtype):
        return 1
    return 3 if is_list_view(dtype) else 2


def _seen_below(array: pa.Array, seen: np.ndarray | None) -> np.ndarray | None:
    """Which values of an array's children are below no null; None: all of them."""
    is_fixed = pat.is_fixed_size_list(array.type)
    if not is_fixed and not pat.is_struct(array.type):
        return None  # null lists have no elements
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        seen = valid if seen is None else valid & seen
    return seen if seen is None or not is_fixed else np.repeat(seen, array.type.list_size)


def _entries_seen(
    array: pa.DictionaryArray | pa.RunEndEncodedArray, seen: np.ndarray | None
) -> np.ndarray | None:
    """Which entries of a dictionary, or runs, stand for a value that is seen; None: all."""
    if seen is None:
        return None
    if isinstance(array, pa.RunEndEncodedArray):
        indices, count = run_indices(array), len(array.values)
    else:
        indices, count = dictionary_indices(array), len(array.dictionary)
    found = np.zeros(count + 1, bool)
    found[indices[seen]] = True  # nulls, -1, are the last
    return found[:-1]


def _renumbered(
    array: pa.DictionaryArray, entries: pa.Array, where: str, seen: np.ndarray | None
) -> pa.DictionaryArray:
    """The same values with another dictionary; those that are not seen may become others."""
    places = positions(entries, array.dictionary)
    shown = _entries_seen(array, seen)
    if shown is not None:
        places = np.where(shown, places, np.maximum(places, 0))
    if (places < 0).any():
        raise InvalidFileError(
            f"{where}: expected the {len(entries)} values of its ordered dictionary, found "
            f"another at place {int(np.argmin(places))} of {len(places)}"
        )
    if not len(entries):
        return array  # no value is seen
    indices = pa.array(places).take(array.indices).cast(array.type.index_type)
    return pa.DictionaryArray.from_arrays(indices, entries, ordered=True)


@dataclass(slots=True)
class StripeOrders:
    """Joins the ordered dictionaries of a stripe's batches.

    nodes: The trees of the columns that have any, by ordinal.
    """

    nodes: Mapping[int, Node]
    found: Mapping[Place, pa.Array]

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> StripeOrders:
        """For columns of these trees."""
        return cls({at: node for at, node in enumerate(nodes) if has_ordered(node)}, {})

    def add(self, batches: Iterable[pa.RecordBatch]) -> str | None:
        """Join the dictionaries of batches that are to be in the stripe, too.

        Returns: None, or the column whose dictionaries have no order in common: nothing is joined
            then.
        """
        if not self.nodes:
            return None
        found = dict(self.found)
        for batch in batches:
            for column, node in self.nodes.items():
                for number, array in ordered_arrays(node, batch.column(column)):
                    order = joined_order(found.get((column, number)), array.dictionary)
                    if order is None:
                        return (
                            f"column {node.name!r}: expected ordered dictionaries of one order "
                            "in a stripe, found values in another order"
                        )
                    found[column, number] = order
        self.found = found
        return None

    def take(self) -> Mapping[Place, pa.Array]:
        """What the stripe has; the next one begins."""
        found, self.found = self.found, {}
        return found


def orders_of(node: Node, chunks: Iterable[pa.Array]) -> OrderedDictionaries | None:
    """The ordered dictionaries that chunks of one column have together, as those of a stripe 0.

    Returns: None where the orders of two chunks contradict each other.
    """
    orders = StripeOrders.of([node])
    if orders.add(pa.record_batch([chunk], [""]) for chunk in chunks) is not None:
        return None
    found = OrderedDictionaries()
    found.add(0, orders.take())
    return found

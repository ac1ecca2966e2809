"""The section MAP_KEYS: which keys of maps have columns of their own.

====== ================ =========================================================
offset type             meaning
====== ================ =========================================================
0      MAP_KEYS_HEADER
8      MAP_KEYS_ENTRY   one a shredded map, in the order of the columns
...    name indexes     of the keys of each map, at multiples of 8
====== ================ =========================================================

Columns of keys follow the batch column: those of the first map, then those of the next. A name
index of keys is that of columns (see `cit`); integers are in it as decimal numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.maps import Key, has_shreddable_keys, parse_key
from fermion.columns.types import Node, column_node
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.exports import dataclass
from fermion.forks import cached_property
from fermion.layout import MAP_KEYS_ENTRY, MAP_KEYS_HEADER, padded
from fermion.metadata.cit import NameIndex, build_name_index


def build_map_keys(maps: Mapping[int, bytes], counts: Sequence[int]) -> bytes:
    """The section; empty where no map is shredded.

    maps: The name index of the keys of each shredded map, by the map's ordinal, ascending.
    counts: How many keys each has.
    """
    if not maps:
        return b""
    header = np.zeros(1, MAP_KEYS_HEADER)
    header["numMaps"] = len(maps)
    entries = np.zeros(len(maps), MAP_KEYS_ENTRY)
    start, indexes = header.nbytes + entries.nbytes, b""
    for place, (column, index) in enumerate(maps.items()):
        entries[place] = column, counts[place], start + len(indexes), len(index)
        indexes += padded(index)
    return header.tobytes() + entries.tobytes() + indexes


def build_key_index(keys: Sequence[Key]) -> bytes:
    """The name index of the keys of a map."""
    return build_name_index([str(key) for key in keys])


@dataclass(frozen=True, eq=False)
class MapKeys:
    """The keys of a map that have columns.

    column: Ordinal of the map.
    first: Ordinal of the column of its first key; the others follow it.
    """

    column: int
    first: int
    count: int
    dtype: pa.MapType
    names: NameIndex
    where: str

    @cached_property
    def node(self) -> Node:
        """The tree of a key's column: the values, and null where a row has none."""
        return column_node(self.dtype.item_field.with_nullable(True), where=self.where)

    @property
    def ordinals(self) -> range:
        """The columns of the keys."""
        return range(self.first, self.first + self.count)

    def find(self, key: Key) -> int | None:
        """The ordinal of the column of a key; None where it has none."""
        found = self.names.find(str(key))
        if len(found) > 1:
            raise InvalidFileError(f"{self.where}: two columns for the key {key!r}")
        return self.first + found[0] if found else None

    @cached_property
    def keys(self) -> list[Key]:
        """All keys, in the order of their columns."""
        texts = self.names.all()
        if not pat.is_integer(self.dtype.key_type):
            found: list[Key] = list(texts)
        else:
            try:
                found = [parse_key(self.dtype, text, self.where) for text in texts]
            except InvalidArgumentError as error:
                raise InvalidFileError(str(error)) from None
            if list(map(str, found)) != texts:
                raise InvalidFileError(f"{self.where}: keys that are no plain numbers")
        if len(set(found)) < len(found):
            raise InvalidFileError(f"{self.where}: several columns for one key")
        return found


def parse_map_keys(
    view: Callable[[int, int], memoryview],
    length: int,
    columns: tuple[int, int, int],
    type_of: Callable[[int], pa.DataType],
    where: str,
) -> dict[int, MapKeys]:
    """The section MAP_KEYS: the keys of each shredded map, by its ordinal.

    view: Gives ``length`` verified bytes of the section from ``offset`` on.
    columns: How many columns of the user there are, where those of keys begin, and how many of
        them there are.
    type_of: The type of a column.
    Raises InvalidFileError.
    """
    num_columns, first, wanted = columns
    where = f"{where}: map keys"
    size = MAP_KEYS_HEADER.itemsize
    count = (
        int(np.frombuffer(view(0, size), MAP_KEYS_HEADER)["numMaps"][0]) if length >= size else 0
    )
    stop = size + count * MAP_KEYS_ENTRY.itemsize
    if not 0 < count <= num_columns or stop > length:
        raise InvalidFileError(f"{where}: {count} maps do not fit {length} bytes")
    found: dict[int, MapKeys] = {}
    last = -1
    entries = np.frombuffer(view(size, stop - size), MAP_KEYS_ENTRY)
    for column, keys, offset, size in entries.tolist():
        if not last < column < num_columns or offset < stop or offset + size > length:
            raise InvalidFileError(f"{where}: entry of column {column}: {offset}+{size}")
        dtype = type_of(column)
        if not has_shreddable_keys(dtype):
            raise InvalidFileError(f"{where}: column {column} is {dtype}")

        def view_of(start: int, count: int, base: int = offset) -> memoryview:
            return view(base + start, count)

        names = NameIndex(view_of, size, keys, f"{where} of column {column}")
        found[column] = MapKeys(column, first, keys, dtype, names, f"{where} of column {column}")
        first, last, wanted = first + keys, column, wanted - keys
    if wanted:
        raise InvalidFileError(f"{where}: the footer has {wanted} key columns more")
    return found

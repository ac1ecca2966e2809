"""The section MAP_KEYS: which keys of maps, and paths of Variant columns, have columns.

====== ================ =========================================================
offset type             meaning
====== ================ =========================================================
0      MAP_KEYS_HEADER
8      MAP_KEYS_ENTRY   one a shredded column, in the order of the columns
...    name indexes     of the keys of each map, at multiples of 8
====== ================ =========================================================

Of a Variant column the types of its paths precede the name index, a byte each, and a bit a stripe
and path, which says that the rest holds nothing of the path but nulls; filled up to 8 bytes.
Columns of keys follow the batch column: those of the first map, then those of the next. A name
index of keys is that of columns (see `cit`); integers are in it as decimal numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.maps import Key, has_shreddable_keys, parse_key
from fermion.columns.types import Node, column_node, is_variant
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.forks import cached_property
from fermion.layout import MAP_KEYS_ENTRY, MAP_KEYS_HEADER, align, padded
from fermion.metadata.cit import NameIndex, build_name_index

if TYPE_CHECKING:
    from fermion.columns import variants
else:
    variants = LoadedWhenAskedFor("fermion.columns.variants")


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


def build_key_index(keys: Sequence[str]) -> bytes:
    """What the section has of a map: the name index of its keys."""
    return build_name_index(keys)


def build_paths(paths: Sequence[str], kinds: Sequence[int], complete: np.ndarray) -> bytes:
    """What the section has of a Variant column.

    kinds: The number of the type of each path's column.
    complete: ``bool``, shape (stripes, paths).
    """
    bits = np.packbits(complete.reshape(-1), bitorder="little")
    return padded(bytes(kinds) + bits.tobytes()) + build_name_index(paths)


@dataclass(frozen=True, eq=False)
class ColumnKeys:
    """What has columns below a column: keys of a map, or paths of a Variant column.

    column: Ordinal of the map.
    first: Ordinal of the column of its first key; the others follow it.
    """

    column: int
    first: int
    count: int
    names: NameIndex
    where: str

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


@dataclass(frozen=True, eq=False)
class VariantPaths(ColumnKeys):
    """The paths of a Variant column that have columns.

    kinds: ``uint8``, shape (paths,): the numbers of their types.
    complete: ``bool``, shape (stripes, paths): where the rest holds nothing of a path but nulls.
    """

    kinds: np.ndarray
    complete: np.ndarray

    def node_at(self, place: int) -> Node:
        """The tree of the column of a path."""
        return _path_node(int(self.kinds[place]))

    @cached_property
    def keys(self) -> list[variants.Path]:
        """All paths, in the order of their columns."""
        texts = self.names.all()
        try:
            found = [variants.parse_path(text, self.where) for text in texts]
        except InvalidArgumentError as error:
            raise InvalidFileError(str(error)) from None
        if list(map(variants.path_text, found)) != texts or len(set(found)) < len(found):
            raise InvalidFileError(f"{self.where}: paths that are not plain, or come twice")
        return found

    def places_of(self, steps: tuple[str | int, ...], dtype: pa.DataType) -> list[int] | None:
        """Which paths' columns a part as a type is made of, besides the rest; None: of all."""
        if any(isinstance(step, int) for step in steps):
            return []  # arrays are in the rest
        is_whole = not pat.is_primitive(dtype)  # such as the text of an object
        if is_whole and any(each[: len(steps)] == steps != each for each in self.keys):
            return None
        own = self.find(variants.path_text([str(step) for step in steps]))
        return [] if own is None else [own - self.first]

    def places_below(
        self, paths: Sequence[variants.Path], with_nulls: bool
    ) -> tuple[list[int], bool]:
        """Columns that hold values at some paths or below; and whether these are all that is there.

        with_nulls: Whether a Variant null at a path, which no column has, counts as a value.
        """
        if not with_nulls:
            found = [self.find(variants.path_text(path)) for path in paths]
            own = [each - self.first for each in found if each is not None]
            if len(own) == len(found) and self.complete[:, own].all():
                return own, True
        below = [any(each[: len(path)] == path for path in paths) for each in self.keys]
        return np.flatnonzero(below).tolist(), False

    def with_offsets(self, rest: pa.Array) -> pa.Array:
        """The rest of some rows with offsets in place of ranks."""
        return variants.with_offsets(rest, self.where)

    @cached_property
    def tree(self) -> variants.PathTree:
        """The paths as kernels take them."""
        return variants.PathTree(self.keys, self.kinds)

    def stored(self) -> bytes:
        """What the section has of the column."""
        return build_paths(self.names.all(), self.kinds.tolist(), self.complete)


@cache
def _path_node(kind: int) -> Node:
    return column_node(pa.field("", variants.TYPES[kind]), where="")


@dataclass(frozen=True, eq=False)
class MapKeys(ColumnKeys):
    """The keys of a map that have columns."""

    dtype: pa.MapType

    @cached_property
    def node(self) -> Node:
        """The tree of a key's column: the values, and null where a row has none."""
        return column_node(self.dtype.item_field.with_nullable(True), where=self.where)

    def node_at(self, place: int) -> Node:
        """The tree of the column of a key, which is that of all keys."""
        return self.node

    def stored(self) -> bytes:
        """What the section has of the map."""
        return build_key_index([str(key) for key in self.keys])

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
    num_stripes: int,
    field_of: Callable[[int], pa.Field],
    where: str,
) -> dict[int, MapKeys | VariantPaths]:
    """The section MAP_KEYS: what has columns of each shredded column, by its ordinal.

    view: Gives ``length`` verified bytes of the section from ``offset`` on.
    columns: How many columns of the user there are, where those of keys begin, and how many of
        them there are.
    field_of: The field of a column.
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
    found: dict[int, MapKeys | VariantPaths] = {}
    last = -1
    entries = np.frombuffer(view(size, stop - size), MAP_KEYS_ENTRY)
    for column, keys, offset, size in entries.tolist():
        if not last < column < num_columns or offset < stop or offset + size > length:
            raise InvalidFileError(f"{where}: entry of column {column}: {offset}+{size}")
        field, own = field_of(column), f"{where} of column {column}"
        if not is_variant(field) and not has_shreddable_keys(field.type):
            raise InvalidFileError(f"{where}: column {column} is {field.type}")

        def view_of(start: int, count: int, base: int = offset) -> memoryview:
            return view(base + start, count)

        if is_variant(field):
            head = align(keys + -(-keys * num_stripes // 8))
            if head > size:
                raise InvalidFileError(f"{own}: {keys} paths do not fit {size} bytes")
            data = np.frombuffer(view(offset, head), np.uint8)
            kinds = data[:keys]
            if ((kinds == 0) | (kinds >= len(variants.TYPES))).any():
                raise InvalidFileError(f"{own}: a type that paths do not have")
            bits = np.unpackbits(data[keys:], count=keys * num_stripes, bitorder="little")
            complete = bits.astype(bool).reshape(num_stripes, keys)
            names = NameIndex(partial(view_of, base=offset + head), size - head, keys, own)
            found[column] = VariantPaths(column, first, keys, names, own, kinds, complete)
        else:
            names = NameIndex(view_of, size, keys, own)
            found[column] = MapKeys(column, first, keys, names, own, field.type)
        first, last, wanted = first + keys, column, wanted - keys
    if wanted:
        raise InvalidFileError(f"{where}: the footer has {wanted} key columns more")
    return found

"""The name index: column names in byte order, front-coded, searched in place.

====== =============== ============================================================
offset type            meaning
====== =============== ============================================================
0      NAME_INDEX_HEADER
16     u32[restarts]   offset of every 16th entry, from the first entry on
...    entries         one a column, sorted by the name's UTF-8 bytes, then ordinal
====== =============== ============================================================

An entry is one byte ``shared << 4 | rest``, a varint of ``shared - 15`` where shared is 15, a
varint of ``rest - 15`` where rest is 15, ``rest`` bytes, and the ordinal as a varint. ``shared``
bytes are taken from the name before; at a restart it is 0. Names stand here and nowhere else in
the file, so 10,000 of them cost about what their characters cost.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from fermion.errors import InvalidFileError
from fermion.kernels import find_name, read_names, write_names
from fermion.layout import NAME_INDEX_HEADER, RESTART_INTERVAL

FIRST_NAME_BYTES = 512
GROUPS_KEPT_MAX = 64
"""Groups whose names stay decoded; names that are asked for one by one often share some."""
WHOLE_BYTES_MAX = 2**20
"""An index up to this size is verified as a whole, and searched by one call for each name."""

_HEADER = struct.Struct("<IIII")
assert _HEADER.size == NAME_INDEX_HEADER.itemsize

View = Callable[[int, int], memoryview]


def build_name_index(names: Sequence[str]) -> bytes:
    """The index of these names; a name's ordinal is its place in the sequence."""
    encoded = [name.encode() for name in names]
    order = sorted(range(len(encoded)), key=encoded.__getitem__)
    entries, restarts = write_names(
        [encoded[ordinal] for ordinal in order], np.array(order, np.int64), RESTART_INTERVAL
    )
    header = _HEADER.pack(len(order), RESTART_INTERVAL, len(restarts), 0)
    return header + restarts.astype("<u4").tobytes() + entries


class NameIndex:
    """Searches a name index, of which only what the search meets is decoded.

    Parameters
    ----------
    view
        Gives ``length`` verified bytes of the section from ``offset`` on.
    length
        Bytes of the section.
    num_columns
        What the footer says; names and ordinals must agree with it.
    where
        The file, for messages.
    """

    def __init__(self, view: View, length: int, num_columns: int, where: str) -> None:
        self._view = view
        self._length = length
        self._where = where
        if length < _HEADER.size:
            raise self._invalid(f"expected a header of {_HEADER.size} bytes, found {length}")
        self._count, self._interval, self._restarts, _ = _HEADER.unpack(view(0, _HEADER.size))
        self._entries = _HEADER.size + 4 * self._restarts
        if self._count != num_columns:
            raise self._invalid(f"expected {num_columns} names, found {self._count}")
        if self._interval < 1 or self._restarts != -(-self._count // self._interval):
            raise self._invalid(f"{self._restarts} restarts of {self._interval} do not fit")
        if self._entries > length:
            raise self._invalid(f"restarts end at {self._entries}, past its {length} bytes")
        starts = np.frombuffer(view(_HEADER.size, 4 * self._restarts), "<u4").astype(np.int64)
        self._bounds = np.append(starts + self._entries, length)
        if (np.diff(self._bounds) <= 0).any():
            raise self._invalid(f"its {self._restarts} groups do not follow each other")
        self._first_names: dict[int, bytes] = {}
        self._groups: dict[int, list[tuple[bytes, int]]] = {}

    def _invalid(self, what: str) -> InvalidFileError:
        return InvalidFileError(f"{self._where}: name index: {what}")

    def find(self, name: str) -> list[int]:
        """Ordinals of the columns of exactly this name: none, one, or several for duplicates."""
        wanted = name.encode(errors="surrogatepass")
        if self._length <= WHOLE_BYTES_MAX:
            data = self._view(0, self._length)
            ordinals = find_name(data, self._bounds, self._interval, self._count, wanted)
            if ordinals is not None:
                return ordinals
        return self._find(wanted)

    def _find(self, wanted: bytes) -> list[int]:
        """The same without decoding more than the search meets; knows what to say of damage."""
        low, high = 0, self._restarts
        while low < high:
            middle = (low + high) // 2
            if self._first_name(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        found: list[int] = []
        for group in range(max(low - 1, 0), self._restarts):
            entries = self._whole_group(group)
            found += [ordinal for entry, ordinal in entries if entry == wanted]
            if entries[-1][0] > wanted:
                break
        return found

    def all(self) -> list[str]:
        """Every name, by ordinal; decodes the whole index."""
        found = read_names(self._view(0, self._length), self._bounds, self._interval, self._count)
        return self._all() if found is None else found

    def _all(self) -> list[str]:
        """The same name by name, which knows what to say of damage."""
        names: list[str | None] = [None] * self._count
        for group in range(self._restarts):
            for name, ordinal in self._group(group, self._interval):
                if names[ordinal] is not None:
                    raise self._invalid(f"two names for column {ordinal}")
                names[ordinal] = self._text(name)
        return [name for name in names if name is not None]

    def _text(self, name: bytes) -> str:
        try:
            return name.decode()
        except UnicodeDecodeError as error:
            raise self._invalid(f"a name is not UTF-8: {error}") from None

    def _first_name(self, group: int) -> bytes:
        name = self._first_names.get(group)
        if name is None:
            name = self._short_first_name(group) or self._group(group, 1)[0][0]
            self._first_names[group] = name
        return name

    def _short_first_name(self, group: int) -> bytes:
        """The first name of a group if it has 1 to 14 bytes, which need no decoding; else none.

        A search looks at dozens of them.
        """
        start, stop = self._bounds[group : group + 2].tolist()
        entry = self._view(start, min(16, stop - start))
        size = entry[0]
        return bytes(entry[1 : size + 1]) if 0 < size < 15 and size + 1 < len(entry) else b""

    def _whole_group(self, group: int) -> list[tuple[bytes, int]]:
        entries = self._groups.get(group)
        if entries is None:
            entries = self._group(group, self._interval)
            if len(self._groups) < GROUPS_KEPT_MAX:
                self._groups[group] = entries
        return entries

    def _group(self, group: int, limit: int) -> list[tuple[bytes, int]]:
        start, stop = int(self._bounds[group]), int(self._bounds[group + 1])
        limit = min(limit, self._count - group * self._interval)
        # A first name alone is nearly always shorter than this; if not, the whole group is read.
        ends = (min(stop, start + FIRST_NAME_BYTES), stop) if limit == 1 else (stop,)
        for end in ends:
            with suppress(IndexError):
                return self._decode(bytes(self._view(start, end - start)), limit)
        raise self._invalid(f"group {group} is cut short")

    def _decode(self, data: bytes, limit: int) -> list[tuple[bytes, int]]:
        entries: list[tuple[bytes, int]] = []
        at, name = 0, b""
        for _ in range(limit):
            shared, rest = data[at] >> 4, data[at] & 15
            at += 1
            if shared == 15:
                more, at = _varint(data, at)
                shared += more
            if rest == 15:
                more, at = _varint(data, at)
                rest += more
            if at + rest >= len(data):
                raise IndexError
            if shared > len(name):
                raise self._invalid(f"a name shares {shared} bytes with one of {len(name)}")
            name = name[:shared] + data[at : at + rest]
            ordinal, at = _varint(data, at + rest)
            if ordinal >= self._count:
                raise self._invalid(f"ordinal {ordinal} of {self._count} columns")
            entries.append((name, ordinal))
        return entries


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 35:
            raise IndexError

"""The index of columns: where their metadata blocks are (CIT), and which has a name (name index).

The CIT has u64 offsets of the CMBs, one more than there are columns.
Entry ``i`` is where the CMB of column ``i`` starts and entry ``i + 1`` where it ends; equal
neighbours mean a column that is null in every row and has no CMB. System columns follow the user's.

A file with the feature EXT_CIT, whose columns were added, dropped or put in another order after it
was written, has one EXTENDED_CIT_ENTRY a column instead: offset, length and checksum of its CMB,
which may be anywhere before the tail region.

A file whose settings say NO_CIT has none: each CMB then stands behind ``u32 length, u32 check``,
padded to 8, with length 0 for a column that has no CMB, and finding one reads the whole CMB area.
``check`` is the length's CRC-32C XOR its place; 0 in files whose checksums are not bound to places.

The name index has the names in byte order, front-coded, and is searched in place:

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
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from fermion.errors import ChecksumError, InvalidFileError
from fermion.io.checksum import crc32c
from fermion.io.source import CountingSource
from fermion.kernels import find_name, place_of, read_names, write_names
from fermion.layout import (
    ALIGNMENT,
    CMB_HEADER,
    CMB_LENGTH_MAX,
    CMB_TRAILER,
    EXTENDED_CIT_ENTRY,
    HEAD,
    NAME_INDEX_HEADER,
    RESTART_INTERVAL,
    align,
)
from fermion.metadata.cmb import bind_cmbs
from fermion.metadata.footer import Footer, TailRegion

# From so many columns on, arrays are cheaper than a look-up each.
BULK_COLUMNS = 64

_PAIR = struct.Struct("<QQ")
_LENGTH = struct.Struct("<II")


def build_cit(cmb_offset: int, lengths: Sequence[int] | np.ndarray) -> bytes:
    """The table for CMBs that lie end to end from ``cmb_offset`` on."""
    offsets = np.zeros(len(lengths) + 1, dtype="<u8")
    np.cumsum(np.asarray(lengths, dtype=np.uint64), out=offsets[1:])
    return (offsets + np.uint64(cmb_offset)).tobytes()


def build_extended_cit(ranges: np.ndarray, checksums: np.ndarray) -> bytes:
    """The table of a file whose columns were changed.

    ranges: ``int64``, shape (columns, 2): offset and length of each CMB; length 0 where there is
        none.
    checksums: ``uint32``, shape (columns,): what the CMBs' trailers say.
    """
    entries = np.zeros(len(ranges), EXTENDED_CIT_ENTRY)
    present = ranges[:, 1] > 0
    entries["offset"][present] = ranges[present, 0]
    entries["length"] = ranges[:, 1]
    entries["crc"][present] = checksums[present]
    return entries.tobytes()


def build_indexed(
    cmbs: bytearray, lengths: np.ndarray, cmb_offset: int, place_key: int
) -> bytearray:
    """The CMB area of a file with a CIT: the CMBs end to end, which are bound to their places.

    cmbs: End to end, bound to no place.
    lengths: ``int64``: bytes of each; 0 for a column that has none.
    cmb_offset: Where the area goes in the file.
    """
    bind_cmbs(cmbs, lengths, place_key, np.cumsum(lengths) - lengths + cmb_offset)
    return cmbs


def build_unindexed(
    cmbs: bytearray, lengths: np.ndarray, cmb_offset: int, place_key: int
) -> bytearray:
    """The CMB area of a file without a CIT; parameters are those of `build_indexed`."""
    spaces = _LENGTH.size + lengths  # both multiples of 8
    places = np.cumsum(spaces) - spaces + cmb_offset
    bind_cmbs(cmbs, lengths, place_key, places + _LENGTH.size)
    out, at = bytearray(), 0
    for length, offset in zip(lengths.tolist(), places.tolist(), strict=True):
        out += _LENGTH.pack(length, _length_check(length, place_key, offset))
        out += cmbs[at : at + length]
        at += length
    return out


def _length_check(length: int, place_key: int, offset: int) -> int:
    """What stands behind the length of a CMB, at an offset of the file."""
    if not place_key:
        return 0
    return crc32c(length.to_bytes(4, "little")) ^ place_of(place_key, offset)


class ColumnRanges(ABC):
    """Finds CMBs by ordinal."""

    def __init__(self, footer: Footer, where: str) -> None:
        self._footer, self._where = footer, where

    @abstractmethod
    def ranges(self, ordinals: Sequence[int] | np.ndarray) -> np.ndarray:
        """Offset and length of each column's CMB; length 0 where there is none.

        ``int64``, shape (columns, 2).
        """

    def checksums(self, ordinals: Sequence[int] | np.ndarray) -> np.ndarray | None:
        """What the trailer of each column's CMB must say, where the index knows.

        ``uint32``, shape (columns,); None: it does not.
        """
        return None

    def present(self) -> np.ndarray:
        """Whether each column has a CMB: bool, shape (user and system columns,)."""
        count = self._footer.num_columns + self._footer.num_system_columns
        return self.ranges(range(count))[:, 1] > 0


def open_cit(source: CountingSource, tail: TailRegion, footer: Footer, where: str) -> ColumnRanges:
    """Whichever index of columns a file has."""
    if footer.is_extended:
        return ExtendedColumnIndex(tail, footer, where)
    if footer.has_cit:
        return ColumnIndexTable(tail, footer, where)
    return UnindexedColumns(source, footer, where)


class UnindexedColumns(ColumnRanges):
    """Looks up CMB ranges in a file without a CIT, by walking its CMB area once."""

    def __init__(self, source: CountingSource, footer: Footer, where: str) -> None:
        super().__init__(footer, where)
        self._source = source
        self._found: np.ndarray | None = None

    def _walk(self) -> np.ndarray:
        place = self._footer.cmb_offset, self._footer.cmb_length
        return self._source.read_checked([place], lambda found: self._places(found[0]))

    def _places(self, area: memoryview) -> np.ndarray:
        footer = self._footer
        found, at = [], 0
        for ordinal in range(footer.num_columns + footer.num_system_columns):
            if at + _LENGTH.size > len(area):
                raise self._error(ordinal, at, len(area))
            length, check = _LENGTH.unpack_from(area, at)
            expected = _length_check(length, footer.place_key, footer.cmb_offset + at)
            if check != expected and footer.place_key:
                raise ChecksumError(
                    f"{self._where}: offset {footer.cmb_offset + at}: length of a CMB: checksum: "
                    f"expected {expected:#010x}, found {check:#010x}"
                )
            at += _LENGTH.size
            if check != expected or at + length > len(area):
                raise self._error(ordinal, at, len(area))
            found.append((footer.cmb_offset + at, length))
            at = align(at + length)
        if at != len(area):
            raise self._error(len(found), at, len(area))
        return np.array(found, np.int64).reshape(-1, 2)

    def _error(self, ordinal: int, at: int, length: int) -> InvalidFileError:
        return InvalidFileError(
            f"{self._where}: offset {self._footer.cmb_offset + at}: CMB area of {length} bytes: "
            f"column {ordinal} does not fit"
        )

    def ranges(self, ordinals: Sequence[int] | np.ndarray) -> np.ndarray:
        if self._found is None:
            self._found = self._walk()
        return self._found[np.asarray(ordinals, np.int64)]


class ColumnIndexTable(ColumnRanges):
    """Looks up CMB ranges without reading the whole table."""

    def __init__(self, tail: TailRegion, footer: Footer, where: str) -> None:
        super().__init__(footer, where)
        self._tail = tail

    def ranges(self, ordinals: Sequence[int] | np.ndarray) -> np.ndarray:
        """See `ColumnRanges.ranges`.

        Raises InvalidFileError: For entries that fall, lie outside the CMB area, or are not
            multiples of 8.
        """
        if len(ordinals) > BULK_COLUMNS:
            return self._ranges_of_many(np.asarray(ordinals, np.int64))
        base, wanted = self._footer.cit_offset, [int(each) for each in ordinals]
        first = min(wanted, default=0)
        table: memoryview | None = None
        if wanted and (count := max(wanted) + 2 - first) <= BULK_COLUMNS:
            table = self._tail.view(base + 8 * first, 8 * count)
        ranges = []
        for ordinal in wanted:
            if table is None:
                start, stop = _PAIR.unpack(self._tail.view(base + 8 * ordinal, 16))
            else:
                start, stop = _PAIR.unpack_from(table, 8 * (ordinal - first))
            self._check(ordinal, start, stop)
            ranges.append((start, stop - start))
        return np.array(ranges, np.int64).reshape(-1, 2)

    def _ranges_of_many(self, ordinals: np.ndarray) -> np.ndarray:
        """The same by way of arrays: no call a column."""
        low, high = self._footer.cmb_offset, self._footer.tail_offset
        first, last = int(ordinals.min()), int(ordinals.max())
        data = self._tail.view(self._footer.cit_offset + 8 * first, 8 * (last - first + 2))
        table = np.frombuffer(data, "<u8")
        starts, stops = table[ordinals - first], table[ordinals - first + 1]
        wrong = (starts < low) | (stops < starts) | (stops > high)
        wrong |= (stops - starts > CMB_LENGTH_MAX) | (((starts | stops) & (ALIGNMENT - 1)) != 0)
        if wrong.any():
            place = int(np.argmax(wrong))
            self._check(int(ordinals[place]), int(starts[place]), int(stops[place]))
        return np.stack((starts, stops - starts), axis=1).astype(np.int64)

    def _check(self, ordinal: int, start: int, stop: int) -> None:
        low, high = self._footer.cmb_offset, self._footer.tail_offset
        inside = low <= start <= stop <= high and stop - start <= CMB_LENGTH_MAX
        if not inside or start % ALIGNMENT or stop % ALIGNMENT:
            raise InvalidFileError(
                f"{self._where}: offset {self._footer.cit_offset + 8 * ordinal}: CIT: CMB of "
                f"column {ordinal} at {start} to {stop}, CMB area {low} to {high}"
            )

    def present(self) -> np.ndarray:
        table = self._tail.view(self._footer.cit_offset, self._footer.cit_length)
        return np.diff(np.frombuffer(table, "<u8")) != 0


class ExtendedColumnIndex(ColumnRanges):
    """Looks up CMB ranges where each column has an entry of its own."""

    def __init__(self, tail: TailRegion, footer: Footer, where: str) -> None:
        super().__init__(footer, where)
        self._tail = tail

    def _entries(self, ordinals: Sequence[int] | np.ndarray) -> np.ndarray:
        wanted, size = np.asarray(ordinals, np.int64), EXTENDED_CIT_ENTRY.itemsize
        if not len(wanted):
            return np.zeros(0, EXTENDED_CIT_ENTRY)
        base = self._footer.cit_offset
        if len(wanted) <= BULK_COLUMNS:
            views = [self._tail.view(base + size * each, size) for each in wanted.tolist()]
            return np.frombuffer(b"".join(views), EXTENDED_CIT_ENTRY)
        first, last = int(wanted.min()), int(wanted.max())
        data = self._tail.view(base + size * first, size * (last - first + 1))
        return np.frombuffer(data, EXTENDED_CIT_ENTRY)[wanted - first]

    def ranges(self, ordinals: Sequence[int] | np.ndarray) -> np.ndarray:
        """See `ColumnRanges.ranges`.

        Raises InvalidFileError: For a CMB that lies outside the file's data and CMBs, or not at
            multiples of 8.
        """
        entries, stop = self._entries(ordinals), self._footer.tail_offset
        offsets, lengths = entries["offset"], entries["length"]
        outside = (offsets < HEAD.itemsize) | (offsets > stop)
        outside |= lengths > stop - np.minimum(offsets, np.uint64(stop))
        outside |= ((offsets | lengths) & (ALIGNMENT - 1)) != 0
        outside |= lengths < CMB_HEADER.itemsize + CMB_TRAILER.itemsize
        wrong = np.where(lengths == 0, (offsets != 0) | (entries["crc"] != 0), outside)
        if wrong.any():
            place = int(np.argmax(wrong))
            raise InvalidFileError(
                f"{self._where}: CIT: CMB of column {int(ordinals[place])}: expected a range "
                f"within {HEAD.itemsize} to {stop}, found {offsets[place]}+{lengths[place]}"
            )
        return np.stack((offsets.astype(np.int64), lengths.astype(np.int64)), axis=1)

    def checksums(self, ordinals: Sequence[int] | np.ndarray) -> np.ndarray | None:
        return self._entries(ordinals)["crc"]


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

    view: Gives ``length`` verified bytes of the section from ``offset`` on.
    length: Bytes of the section.
    num_columns: What the footer says; names and ordinals must agree with it.
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

"""A second reader of the format, written from docs/format.md alone: slow, simple, whole files.

It shares no code with the package, so that a file which both read alike is what the document says.
Leaves come out in their storage types: dictionaries, runs and extension types unwrapped.
"""

from __future__ import annotations

import itertools
import json
import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.types as pat
import xxhash
import zstandard

from tests.kit import variants
from tests.kit.files.independent_crc import crc32c, place_of
from tests.kit.files.independent_records import check_records
from tests.kit.files.independent_trees import Decoder, filler, unpack, unpacked

PATH_TYPES = [
    *(pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.date32()),
    *(pa.timestamp("us", "UTC"), pa.timestamp("us")),
]
ALL_NULL = 0xFFFF_FFFF
Slots = list[Any]


def xxh3(data: bytes) -> int:
    """XXH3-64, its halves put together."""
    found = xxhash.xxh3_64_intdigest(data)
    return found >> 32 ^ found & 0xFFFF_FFFF


def align(value: int) -> int:
    """The next multiple of 8."""
    return (value + 7) // 8 * 8


class File:
    """A file, read from end to start.

    Attributes
    ----------
    schema
        The exact Arrow schema.
    key_values
        The user's metadata.
    num_rows
        Rows.
    sort_order
        Ordinal and flags of each column that the rows are sorted by.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        assert data[:8] == b"FERMION1"
        footer = data[-256:]
        assert footer[248:] == b"FERMION1"
        assert crc32c(footer[:240]) == struct.unpack_from("<I", footer, 240)[0]
        assert struct.unpack_from("<H", footer, 244)[0] == 1
        (
            self._schema_offset,
            self._schema_length,
            self._cit_offset,
            self._cit_length,
            self._cmb_offset,
            self._cmb_length,
            sections_offset,
            sections_length,
            self._columns,
            self.num_rows,
            self._stripes,
            self._system_columns,
            file_length,
            _,
            self._settings,
            _,
            incompat,
        ) = struct.unpack_from("<QQQQQQQIIQIIQQQII", footer)
        assert file_length == len(data)
        self.aligned = bool(self._settings & 8)
        assert incompat & ~505 == 0
        self._has_positions = bool(incompat & 16)
        (minor,) = struct.unpack_from("<H", footer, 246)
        self._has_keys = bool(incompat & 32)
        self._has_blobs = bool(incompat & 64)
        self._has_ranks = bool(incompat & 256)
        features = {
            6: self._has_ranks,
            5: incompat & 128,
            4: self._has_blobs,
            3: self._has_keys,
            2: self._has_positions,
        }
        newest = [version for version, has in features.items() if has]
        assert minor == newest[0] if newest else minor < 2
        self._extended = bool(incompat & 1)
        (key,) = struct.unpack_from("<Q", footer, 224)
        assert bool(key) == bool(incompat & 8)
        self.place_key = key
        self._sizes = struct.unpack_from("<5H", footer, 112)
        self._sections = self._read_sections(sections_offset, sections_length, footer)
        self.key_values = json.loads(self._section(3) or b"{}")
        names = self._read_names(self._section(2))
        shapes = self._read_shapes()
        fields = [shape.with_name(name) for name, shape in zip(names, shapes, strict=True)]
        self._fields = list(self._with_ids(fields))
        self.schema = pa.schema(map(self._given, self._fields), metadata=self._metadata())
        self._stripe_rows = [
            struct.unpack_from("<QII", self._section(1), 16 * i)[1] for i in range(self._stripes)
        ]
        assert sum(self._stripe_rows) == self.num_rows
        self.sort_order = list(struct.iter_unpack("<II", self._section(5)))
        assert bool(self.sort_order) == bool(self._settings & 32)

    def _read_sections(self, offset: int, length: int, footer: bytes) -> dict[int, bytes]:
        directory = self.data[offset : offset + length]
        assert crc32c(directory) == struct.unpack_from("<I", footer, 136)[0]
        sections, blocks = struct.unpack_from("<II", directory)
        tail = self.data[self._cmb_offset + self._cmb_length : offset]
        starts = range(0, len(tail), 65_536)
        assert blocks == len(starts)
        for block, start in enumerate(starts):
            (stored,) = struct.unpack_from("<I", directory, 8 + 24 * sections + 4 * block)
            assert stored == crc32c(tail[start : start + 65_536])
        found = {}
        for index in range(sections):
            kind, _, start, size = struct.unpack_from("<IIQQ", directory, 8 + 24 * index)
            found[kind] = self.data[start : start + size]
        return found

    def _section(self, kind: int) -> bytes:
        return self._sections.get(kind, b"")

    def _read_names(self, data: bytes) -> list[str]:
        count, interval, restarts, _ = struct.unpack_from("<IIII", data)
        names: list[str] = [""] * count
        at, name = 16 + 4 * restarts, b""

        def varint() -> int:
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    return value

        for place in range(count):
            if place % interval == 0:
                (start,) = struct.unpack_from("<I", data, 16 + 4 * (place // interval))
                assert at == 16 + 4 * restarts + start
            shared, rest = data[at] >> 4, data[at] & 15
            at += 1
            shared += varint() if shared == 15 else 0
            rest += varint() if rest == 15 else 0
            name = name[:shared] + data[at : at + rest]
            at += rest
            names[varint()] = name.decode()
        return names

    def _schema_header(self) -> tuple[bytes, tuple[int, ...]]:
        area = self.data[self._schema_offset : self._schema_offset + self._schema_length]
        return area, struct.unpack_from("<IIIIII", area)

    def _metadata(self) -> dict[bytes, bytes] | None:
        area, header = self._schema_header()
        message = area[32 : 32 + header[2]]
        (raw_length,) = struct.unpack_from("<I", area, 24)
        if self._settings & 4 and raw_length != header[2]:
            message = zstandard.ZstdDecompressor().decompress(message, raw_length)
        return pa.ipc.read_schema(pa.py_buffer(message)).metadata if message else None

    def _read_shapes(self) -> list[pa.Field]:
        area, (columns, shapes, metadata_length, kind, runs, blocks) = self._schema_header()
        at = align(32 + metadata_length)
        ids = [0] * columns
        if kind == 8:
            pairs = [struct.unpack_from("<II", area, at + 8 * run) for run in range(runs)]
            for start, shape in pairs:
                ids[start:] = [shape] * (columns - start)
            at += 8 * runs
        elif kind:
            ids = list(
                struct.unpack_from(f"<{columns}{ {1: 'B', 2: 'H', 4: 'I'}[kind] }", area, at)
            )
            at = align(at + kind * columns)
        fields = []
        for block in range(blocks):
            offset, length, raw_length, _ = struct.unpack_from("<IIII", area, at + 16 * block)
            raw = area[offset : offset + length]
            if length != raw_length:
                raw = zstandard.ZstdDecompressor().decompress(raw, raw_length)
            count = min(64, shapes - 64 * block)
            ends = struct.unpack_from(f"<{count + 1}I", raw)
            for low, high in itertools.pairwise(ends):
                message = raw[4 * (count + 1) :][low:high]
                fields.append(pa.ipc.read_schema(pa.py_buffer(message)).field(0))
        return [fields[each] for each in ids]

    def _with_ids(self, fields: list[pa.Field]) -> Iterator[pa.Field]:
        ids = self._section(7)
        for ordinal, field in enumerate(fields):
            number = struct.unpack_from("<I", ids, 4 * ordinal)[0] if ids else ALL_NULL
            if number == ALL_NULL:
                yield field
            else:
                own = {b"PARQUET:field_id": str(number).encode()}
                yield field.with_metadata({**(field.metadata or {}), **own})

    def _blocks(self) -> list[tuple[int, bytes]]:
        """Offset and bytes of the CMB of each column, empty where there is none."""
        columns = self._columns + self._system_columns
        if self._settings & 2:
            found, at = [], self._cmb_offset
            for _ in range(columns):
                length, check = struct.unpack_from("<II", self.data, at)
                own = crc32c(self.data[at : at + 4]) if self.place_key else 0
                assert check == own ^ place_of(self.place_key, at)
                found.append((at + 8, self.data[at + 8 : at + 8 + length]))
                at = align(at + 8 + length)
            return found
        if self._extended:
            assert self._cit_length == 16 * columns
            return [self._extended_block(self._cit_offset + 16 * i) for i in range(columns)]
        ends = struct.unpack_from(f"<{columns + 1}Q", self.data, self._cit_offset)
        assert ends[-1] == self._cmb_offset + self._cmb_length
        return [(low, self.data[low:high]) for low, high in itertools.pairwise(ends)]

    def _extended_block(self, entry: int) -> tuple[int, bytes]:
        offset, length, crc = struct.unpack_from("<QII", self.data, entry)
        block = self.data[offset : offset + length]
        assert offset % 8 == length % 8 == 0
        assert len(block) == length
        assert crc == (struct.unpack_from("<I", block, length - 8)[0] if length else offset)
        return offset, block

    def column(self, ordinal: int) -> pa.ChunkedArray:
        """A column in its storage type."""
        field, keys = self._fields[ordinal], self._map_keys()
        column = self._stored(ordinal, storage(field.type), field.nullable)
        if self._is_blob(field):
            values = [self._blob(each) for each in column.to_pylist()]
            return pa.chunked_array([pa.array(values, self.schema.field(ordinal).type)])
        if ordinal not in keys:
            return column
        whole = self._whole if pat.is_map(column.type) else self._whole_variant
        return whole(column, *keys[ordinal])

    def _is_blob(self, field: pa.Field) -> bool:
        """Whether a column holds references."""
        kinds = "inline", "file", "offset", "size", "checksums"
        kind = (field.metadata or {}).get(b"fermion:blob")
        known = pat.is_struct(field.type) and tuple(each.name for each in field.type) == kinds
        return self._has_blobs and kind in (b"binary", b"large_binary") and known

    def _given(self, field: pa.Field) -> pa.Field:
        if not self._is_blob(field):
            return field
        kind = pa.binary() if field.metadata[b"fermion:blob"] == b"binary" else pa.large_binary()
        return field.with_type(kind).with_metadata({**field.metadata, b"fermion:blob": b"true"})

    def _blob(self, reference: dict[str, Any] | None) -> bytes | None:
        """The value of a reference to this file."""
        if reference is None:
            return None
        if reference["inline"] is not None:
            assert len(reference["inline"]) == reference["size"]
            assert reference["offset"] is reference["checksums"] is reference["file"] is None
            return reference["inline"]
        assert reference["file"] is None
        start = reference["offset"]
        assert start % 64 == 0
        assert 16 <= start <= start + reference["size"] <= self._cmb_offset
        value = self.data[start : start + reference["size"]]
        if reference["checksums"] is not None:
            pieces = [value[at : at + 524_288] for at in range(0, len(value), 524_288)]
            assert [crc32c(piece) for piece in pieces] == reference["checksums"]
        return value

    def _map_keys(self) -> dict[int, tuple[int, list[str], bytes]]:
        """By ordinal: the column of the first key, all keys, and the types of paths."""
        data, found = self._section(9), {}
        assert bool(data) == self._has_keys
        first = self._columns + (self._settings & 1)
        for entry in range(struct.unpack_from("<I", data)[0] if data else 0):
            column, keys, offset, length = struct.unpack_from("<IIQQ", data, 8 + 24 * entry)
            head = 0
            if not pat.is_map(self.schema.field(column).type):
                head = -(-(keys + -(-keys * len(self._stripe_rows) // 8)) // 8) * 8
            names = self._read_names(data[offset + head : offset + length])
            found[column] = first, names, data[offset : offset + keys if head else offset]
            assert len(found[column][1]) == keys
            first += keys
        assert first == self._columns + self._system_columns
        return found

    def _whole_variant(
        self, rest: pa.ChunkedArray, first: int, keys: list[str], kinds: bytes
    ) -> pa.ChunkedArray:
        """Variant values with the values of the columns of their paths."""
        rows = rest.to_pylist()
        for row in rows if self._has_ranks else ():
            if row is not None:
                row["value"] = variants.with_offsets(row["value"])
        trees = [variants.plain(each) for each in rows]
        for place, (text, kind) in enumerate(zip(keys, kinds, strict=True)):
            parts = re.findall(r"'(?:[^']|'')*'|[^.']+", text)
            path = [each[1:-1].replace("''", "'") if each[0] == "'" else each for each in parts]
            values = self._stored(first + place, PATH_TYPES[kind - 1], True)
            for tree, value in zip(trees, values.to_pylist(), strict=True):
                if value is not None:
                    variants.put(tree, tuple(path), variants.primitive(value))
        for row, tree in zip(rows, trees, strict=True):
            if row is not None:
                names = variants.dictionary(row["metadata"])
                row["value"] = variants.encoded(tree, {name: at for at, name in enumerate(names)})
        return pa.chunked_array([pa.array(rows, rest.type)])

    def _whole(
        self, rest: pa.ChunkedArray, first: int, keys: list[str], _: bytes
    ) -> pa.ChunkedArray:
        """Maps with the entries of the columns of keys, sorted by key."""
        rows, is_number = rest.to_pylist(), pa.types.is_integer(rest.type.key_type)
        for place, text in enumerate(keys):
            key = int(text) if is_number else text
            values = self._stored(first + place, storage(rest.type.item_type), True)
            for row, value in zip(rows, values.to_pylist(), strict=True):
                if value is not None:
                    row.append((key, value))
        for row in rows:
            if row is not None:
                row.sort(key=lambda entry: entry[0] if is_number else entry[0].encode())
        return pa.chunked_array([pa.array(rows, rest.type)])

    def _stored(self, ordinal: int, dtype: pa.DataType, nullable: bool) -> pa.ChunkedArray:
        offset, block = self._blocks()[ordinal]
        if not block:
            assert nullable or not self.num_rows
            return pa.chunked_array([pa.nulls(self.num_rows, dtype)])
        column = Column(self, offset, block, self._sizes, self._settings >> 8 & 15)
        assert column.stripe_rows == self._stripe_rows
        parts = [
            column.read(dtype, stripe, rows, itertools.count())
            for stripe, rows in enumerate(self._stripe_rows)
        ]
        return pa.chunked_array(parts, dtype)

    def _batch_column(self) -> Column:
        offset, block = self._blocks()[self._columns]
        return Column(self, offset, block, self._sizes, self._settings >> 8 & 15)

    def index_in_batch(self) -> list[int]:
        """The position of every row in its batch."""
        column = self._batch_column()
        found: list[int] = []
        for stripe, rows in enumerate(self._stripe_rows):
            lengths = column.numbers(1, stripe, "<u4", None)
            if self._has_positions and column.is_stored(2, stripe):
                own = column.numbers(2, stripe, "<u4", rows)
                ends = list(itertools.accumulate(lengths, initial=0))
                for start, stop in itertools.pairwise(ends):
                    part = own[start:stop]
                    assert part == sorted(set(part))
                    assert not part or part[-1] < 2**31 - 1
                found += own
            else:
                found += [position for length in lengths for position in range(length)]
        return found

    def batches(self) -> list[tuple[int, int]]:
        """Id and length of every batch."""
        column = self._batch_column()
        found: list[tuple[int, int]] = []
        for stripe in range(self._stripes):
            ids = column.numbers(0, stripe, "<i8", None)
            found += zip(ids, column.numbers(1, stripe, "<u4", None), strict=True)
        return found


class Column:
    """A column by its CMB."""

    def __init__(
        self, file: File, offset: int, block: bytes, sizes: tuple[int, ...], checksum_kind: int
    ) -> None:
        crc, length = struct.unpack_from("<II", block, len(block) - 8)
        assert length == len(block)
        assert crc == crc32c(block[:-8]) ^ place_of(file.place_key, offset)
        self._file, self._block, self._checksum = file, block, checksum_kind
        stripe_size, stream_size, self._simple_size, self._full_size, self._page_size = sizes
        streams, stripes = struct.unpack_from("<II", block)
        self.stripe_rows = [
            struct.unpack_from("<I", block, 8 + stripe_size * i)[0] for i in range(stripes)
        ]
        at = align(8 + stripe_size * stripes)
        self._streams = [
            struct.unpack_from("<BBHI", block, at + stream_size * i) for i in range(streams)
        ]

    def _chunk(self, stream: int, stripe: int) -> tuple[int, int, int, list[int], list[int]]:
        """Offset, length, flags; sizes and slots of pages (slots empty: one page holds all)."""
        kind, _, _, at = self._streams[stream]
        if kind == 2 or (kind < 2 and at == 0):
            return 0, 0, 0, [], []
        if kind == 3:
            return 0, ALL_NULL, 0, [], []
        if kind == 0:
            offset, length, flags = struct.unpack_from(
                "<QII", self._block, at + self._simple_size * stripe
            )
            return offset, length, flags, [length], []
        offset, length, flags, _, _, _, pages, metas, _ = struct.unpack_from(
            "<QIIqqIIII", self._block, at + self._full_size * stripe
        )
        if pages <= 1:
            return offset, length, flags, [length], []
        found = [
            struct.unpack_from("<II", self._block, metas + self._page_size * i)
            for i in range(pages)
        ]
        return offset, length, flags, [size for size, _ in found], [rows for _, rows in found]

    def values(
        self, stream: int, stripe: int, kind: str, slots: int | None, valid: list[bool] | None
    ) -> Slots:
        """The values of one chunk that has bytes; ``kind`` as `Decoder` has it."""
        offset, length, flags, sizes, rows = self._chunk(stream, stripe)
        assert length not in (0, ALL_NULL)
        assert sum(sizes) == length
        decoder = Decoder(kind)
        records = self._records(stream, stripe)
        if flags & 128:
            assert not flags & 64
            decoder.dictionary = self._shared_dictionary(records[7], decoder)
        found: Slots = []
        counts = []
        for page, size in enumerate(sizes):
            data = self._file.data[offset : offset + size]
            if self._file.aligned:
                assert offset % 64 == 40
                assert size % 64 == 0
            tree, count = self._open(data, offset)
            offset += size
            if page == 0 and flags & 64:
                decoder.dictionary = decoder.decode(tree, count)
                continue
            assert not rows or rows[page] == count
            own = None if valid is None else valid[len(found) : len(found) + count]
            found += decoder.page(tree, count, own)
            counts.append(count)
        if valid is not None:
            check_records(self._file.data, records, kind, found, valid, counts)
        assert slots is None or len(found) == slots
        return found

    def _records(self, stream: int, stripe: int) -> dict[int, bytes]:
        """The extension records of one chunk by tag."""
        kind, _, _, at = self._streams[stream]
        found: dict[int, bytes] = {}
        if kind != 1:
            return found
        (at,) = struct.unpack_from("<I", self._block, at + self._full_size * stripe + 44)
        while at:
            tag, _, length = struct.unpack_from("<HHI", self._block, at)
            if not tag:
                break
            found[tag] = self._block[at + 8 : at + 8 + length]
            at = align(at + 8 + length)
        return found

    def _shared_dictionary(self, record: bytes, decoder: Decoder) -> Slots:
        """The entries of the global dictionary that one chunk may refer to."""
        offset, length, count, crc = struct.unpack("<QIII", record)
        page = self._file.data[offset : offset + length]
        assert crc32c(page) == crc
        tree, slots = self._open(page, offset)
        entries = decoder.decode(tree, slots)
        assert len(set(entries)) == slots >= count
        return entries[:count]

    def is_stored(self, stream: int, stripe: int) -> bool:
        """Whether a chunk has bytes."""
        return self._chunk(stream, stripe)[1] not in (0, ALL_NULL)

    def numbers(self, stream: int, stripe: int, kind: str, slots: int | None) -> list[int]:
        """The values of one chunk as numbers."""
        return unpack(self.values(stream, stripe, kind, slots, None), kind)

    def _open(self, page: bytes, offset: int) -> tuple[bytes, int]:
        version, codec, encoding, slots, raw_length, crc = struct.unpack_from("<BBHIII", page)
        covered = page[:12] + page[16:]
        found = {0: lambda _: 0, 1: zlib.crc32, 2: crc32c, 3: xxh3}[self._checksum](covered)
        assert crc == found ^ (place_of(self._file.place_key, offset) if self._checksum else 0)
        assert version == 1
        tree = page[16 : 16 + raw_length]
        if codec:
            tree = unpacked(codec, page[16:], raw_length)
        assert struct.unpack_from("<H", tree)[0] == encoding
        return tree, slots

    def read(
        self, dtype: pa.DataType, stripe: int, slots: int, ordinals: Iterator[int]
    ) -> pa.Array:
        """A node of the column and all below it."""
        valid = self._valid(next(ordinals), stripe, slots)
        if pat.is_null(dtype):
            return pa.nulls(slots)
        bitmap = None
        if not all(valid):
            bits = sum(1 << slot for slot, each in enumerate(valid) if each)
            bitmap = pa.py_buffer(bits.to_bytes((slots + 7) // 8, "little"))
        if pat.is_struct(dtype):
            children = [self.read(storage(f.type), stripe, slots, ordinals) for f in dtype]
            return pa.Array.from_buffers(dtype, slots, [bitmap], children=children)
        if pat.is_fixed_size_list(dtype):
            child = self.read(dtype.value_type, stripe, slots * dtype.list_size, ordinals)
            return pa.Array.from_buffers(dtype, slots, [bitmap], children=[child])
        stream = next(ordinals)
        has_bytes = self._chunk(stream, stripe)[1] != 0
        if dtype.num_fields:
            lengths = [0] * slots
            if has_bytes:
                lengths = self.numbers(stream, stripe, "<u4", slots)
            ends = [0, *itertools.accumulate(lengths)]
            child_type = dtype.field(0).type
            child = self.read(child_type, stripe, ends[-1], ordinals)
            return self._list(dtype, slots, bitmap, ends, child)
        assert has_bytes or not any(valid)
        kind = leaf_kind(dtype)
        values = [filler(kind)] * slots
        if has_bytes:
            values = self.values(stream, stripe, kind, slots, valid)
        return self._leaf(dtype, slots, bitmap, values)

    def _valid(self, stream: int, stripe: int, slots: int) -> list[bool]:
        assert self._streams[stream][1] == 0
        length = self._chunk(stream, stripe)[1]
        if length in (0, ALL_NULL):
            return [length == 0] * slots
        return self.values(stream, stripe, "bits", slots, None)

    def _list(
        self, dtype: pa.DataType, slots: int, bitmap: Any, ends: list[int], child: pa.Array
    ) -> pa.Array:
        letter = "q" if pat.is_large_list(dtype) or pat.is_large_list_view(dtype) else "i"
        numbers = [ends]
        if pat.is_list_view(dtype) or pat.is_large_list_view(dtype):
            numbers = [ends[:-1], list(map(int.__sub__, ends[1:], ends))]
        packed = [struct.pack(f"<{len(each)}{letter}", *each) for each in numbers]
        buffers = [bitmap, *map(pa.py_buffer, packed)]
        return pa.Array.from_buffers(dtype, slots, buffers, children=[child])

    def _leaf(self, dtype: pa.DataType, slots: int, bitmap: Any, values: Slots) -> pa.Array:
        kind = leaf_kind(dtype)
        if kind == "bits":
            bits = sum(1 << slot for slot, each in enumerate(values) if each)
            data = bits.to_bytes((slots + 7) // 8, "little")
        else:
            data = b"".join(values)
        if kind != "binary":
            return pa.Array.from_buffers(dtype, slots, [bitmap, pa.py_buffer(data)])
        text = pat.is_string(dtype) or pat.is_large_string(dtype) or pat.is_string_view(dtype)
        layout = pa.large_string() if text else pa.large_binary()
        ends = struct.pack(f"<{slots + 1}q", 0, *itertools.accumulate(map(len, values)))
        array = pa.Array.from_buffers(
            layout, slots, [bitmap, pa.py_buffer(ends), pa.py_buffer(data)]
        )
        return array.cast(dtype)


def leaf_kind(dtype: pa.DataType) -> str:
    """How a leaf's values lie in pages: "bits", "binary", a number's letter, or a width."""
    if pat.is_boolean(dtype):
        return "bits"
    if pat.is_fixed_size_binary(dtype) or pat.is_decimal128(dtype) or pat.is_decimal256(dtype):
        return str(dtype.byte_width)
    if pat.is_interval(dtype):
        return str(dtype.bit_width // 8)
    if pat.is_floating(dtype):
        return f"<f{dtype.bit_width // 8}"
    if pat.is_unsigned_integer(dtype):
        return f"<u{dtype.bit_width // 8}"
    try:
        return f"<i{dtype.bit_width // 8}"
    except ValueError:
        return "binary"


def storage(dtype: pa.DataType) -> pa.DataType:
    """The type without extension, dictionary and run-end wrappers, which the format has not."""
    while True:
        if isinstance(dtype, pa.BaseExtensionType):
            dtype = dtype.storage_type
        elif pat.is_dictionary(dtype) or pat.is_run_end_encoded(dtype):
            dtype = dtype.value_type
        else:
            return dtype

"""Dictionaries that stripes of a column share: a page in the index area, found by a record.

Chunks whose pages refer to the dictionary have the flag USES_GLOBAL_DICT and the extension record
GLOBAL_DICTIONARY:

====== ==== ==== ======= ==================================================================
offset size type name    meaning
====== ==== ==== ======= ==================================================================
0      8    u64  offset  of the dictionary in the file
8      4    u32  length
12     4    u32  count   entries, from the first on, that the chunk's codes may stand for
16     4    u32  crc     CRC-32C of the dictionary as it is in the file
====== ==== ==== ======= ==================================================================

The dictionary is a page whose slots are its entries. All records of a stream name the same one;
as it only ever grew while the file was written, their counts never fall from stripe to stripe.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fermion.columns.arrow_buffers import is_same_memory
from fermion.columns.assemble import assemble
from fermion.columns.types import (
    ColumnStreams,
    Node,
    PhysicalType,
    Values,
    concatenate,
    slice_values,
)
from fermion.errors import ChecksumError, InvalidFileError
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.io.checksum import UNCHECKED, crc32c
from fermion.layout import HEAD, ChunkFlag, ExtTag
from fermion.metadata.cmb import Chunk, ChunkRecord, ColumnBlock
from fermion.options import WriteOptions
from fermion.pages.frame import bind_page
from fermion.pages.pages import PageSlice, decode_dictionary, encode_chunk

if TYPE_CHECKING:
    from fermion.columns import shred
    from fermion.encodings import dictionary as dictionaries
    from fermion.encodings.choice.shared_dictionary import GrowingDictionary
else:  # readers need it not
    shred = LoadedWhenAskedFor("fermion.columns.shred")
    dictionaries = LoadedWhenAskedFor("fermion.encodings.dictionary")

_RECORD = struct.Struct("<QIII")


@dataclass(frozen=True, slots=True)
class DictionaryRecord:
    """Where a global dictionary lies, and how much of it a chunk may refer to; see above."""

    offset: int
    length: int
    count: int
    crc: int

    def pack(self) -> bytes:
        """The bytes of the extension record."""
        return _RECORD.pack(self.offset, self.length, self.count, self.crc)

    @property
    def place(self) -> tuple[int, int]:
        """Offset and length in the file."""
        return self.offset, self.length


def dictionary_record(block: ColumnBlock, chunk: Chunk) -> DictionaryRecord | None:
    """The record of a chunk that refers to a global dictionary; None for any other chunk.

    Raises InvalidFileError: The record is missing or too short, or the dictionary does not lie
        before the CMBs.
    """
    if not chunk.flags & ChunkFlag.USES_GLOBAL_DICT:
        return None
    data = block.extension(chunk).get(ExtTag.GLOBAL_DICTIONARY, b"")
    if len(data) < _RECORD.size:
        raise block.error(
            f"the chunk at {chunk.offset} uses a global dictionary: expected a record of "
            f"{_RECORD.size} bytes that says where it is, found {len(data)}"
        )
    record = DictionaryRecord(*_RECORD.unpack_from(data))
    if record.offset < HEAD.itemsize or record.offset + record.length > block.chunk_stop:
        raise block.error(
            f"global dictionary at {record.offset}+{record.length}, data ends at {block.chunk_stop}"
        )
    return record


def encode_dictionary(
    dictionary: GrowingDictionary,
    records: Sequence[ChunkRecord],
    offset: int,
    options: WriteOptions,
    place_key: int,
) -> bytes | bytearray:
    """The finished dictionary as it goes to ``offset`` of the file.

    records: The chunks of its stream; those that refer to it get their extension record.
    place_key: What checksums of pages are bound to their places with.
    """
    entries = dictionary.entries
    cuts = np.array([0, len(entries)], np.int64)
    (page,) = encode_chunk(entries, dictionary.physical, cuts, options=options).pages
    bind_page(page, place_key, offset)
    for record in records:
        if record.shared_entries:
            found = DictionaryRecord(offset, len(page), record.shared_entries, crc32c(page))
            record.extension[ExtTag.GLOBAL_DICTIONARY] = found.pack()
    return page


class GlobalDictionaries:
    """The global dictionaries of an open file that were read so far; safe to share by threads."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._entries: dict[_Key, Values] = {}
        self._arrays: dict[_Key, pa.Array] = {}

    def knows(self, record: DictionaryRecord, physical: PhysicalType) -> bool:
        """Whether the dictionary was read already."""
        return _key(record, physical) in self._entries

    def add(self, record: DictionaryRecord, data: memoryview, physical: PhysicalType) -> None:
        """Decode a dictionary.

        Raises ChecksumError, InvalidFileError, UnsupportedEncodingError, UnsupportedVersionError.
        """
        found = crc32c(data)
        if found != record.crc:
            raise ChecksumError(
                f"{self._where}: global dictionary at {record.offset}: checksum: "
                f"expected {record.crc:#010x}, found {found:#010x}"
            )
        page = PageSlice(data, record.offset, None, 0, 0)
        # The record's checksum covers the page.
        entries = decode_dictionary(page, physical, checks=UNCHECKED, where=self._where)
        self._entries.setdefault(_key(record, physical), entries)

    def entries(self, record: DictionaryRecord, physical: PhysicalType) -> Values:
        """The entries that a chunk's codes may stand for, of a dictionary that was read.

        Raises InvalidFileError: The dictionary has fewer.
        """
        entries = self._entries[_key(record, physical)]
        if record.count > len(entries):
            raise InvalidFileError(
                f"{self._where}: global dictionary at {record.offset}: expected at least "
                f"{record.count} entries, found {len(entries)}"
            )
        return slice_values(entries, 0, record.count)

    def check(self, records: Sequence[DictionaryRecord], physical: PhysicalType) -> None:
        """Check a stream's dictionary and what its chunks say of it, in the order of stripes.

        Raises InvalidFileError: The chunks name different dictionaries, may refer to fewer entries
            than earlier ones or not to all in the end; or a value is there twice.
        """
        entries = self._entries.get(_key(records[-1], physical))
        if entries is None:
            return
        found = f"{self._where}: global dictionary at {records[-1].offset}"
        if any(each.place != records[-1].place for each in records):
            raise InvalidFileError(f"{found}: other stripes of its column have another one")
        counts = [each.count for each in records]
        if counts != sorted(counts) or counts[-1] != len(entries):
            raise InvalidFileError(
                f"{found}: expected counts that grow to its {len(entries)} entries, found {counts}"
            )
        built = dictionaries.build_dictionary(entries, len(entries))
        if built is not None and len(built[1]) != len(entries):
            raise InvalidFileError(f"{found}: expected every entry once")

    def array(self, record: DictionaryRecord, leaf: Node) -> pa.Array:
        """All entries of a dictionary that was read; the same array at every call."""
        assert leaf.physical is not None
        key = _key(record, leaf.physical)
        if key not in self._arrays:
            self._arrays.setdefault(key, entries_array(leaf, self._entries[key]))
        return self._arrays[key]

    def share(
        self, array: pa.DictionaryArray, record: DictionaryRecord, leaf: Node
    ) -> pa.DictionaryArray:
        """An array with indices into the global dictionary instead of its own.

        The array itself where its values are not all in the global dictionary, or it has that
        already.
        """
        shared = self.array(record, leaf)
        if is_same_memory(array.dictionary, shared):
            return array
        assert leaf.physical is not None
        own = np.empty(0, np.int32)
        if len(array.dictionary):
            node = replace(leaf, type=leaf.storage)
            values = shred.shred(pa.chunked_array([array.dictionary]), node).data[leaf.stream]
            entries = self._entries[_key(record, leaf.physical)]
            built = dictionaries.build_dictionary(
                concatenate([entries, values], leaf.physical), len(entries) + len(values)
            )
            assert built is not None
            own = built[0][len(entries) :].astype(np.int32)
            if int(own.max()) >= len(entries):
                return array
        indices = pa.array(own).take(array.indices)
        return pa.DictionaryArray.from_arrays(indices, shared)


def entries_array(leaf: Node, entries: Values) -> pa.Array:
    """Values of a leaf, none of them null, as an Arrow array of its storage type."""
    count = len(entries)
    node = replace(leaf, type=leaf.storage, validity=0, stream=1, stop=2)
    return assemble(node, ColumnStreams(count, {0: count, 1: count}, {0: None}, {}, {1: entries}))


_Key = tuple[int, int, int, PhysicalType]


def _key(record: DictionaryRecord, physical: PhysicalType) -> _Key:
    return record.offset, record.length, record.crc, physical

"""Deletion vectors: which rows of a data file are gone, as roaring bitmaps packed into files.

A file ``deletion/<unique>.dv`` holds the vectors of one commit::

    offset  size  type     name       meaning
    0       4     bytes    magic      "FDV1"
    then, for each vector, where its entry's `DeletionVector.offset` says:
    +0      4     uint32   checksum   CRC-32C of the bitmap, little-endian
    +4      n     bytes    bitmap     row numbers from 0 on, 64-bit roaring, portable format

`DeletionVector.size` is n + 4. Every vector is checked by itself: by checksum, by the number of
rows that its entry says, and by the rows that the data file has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fermion.deadline import TIMEOUT_S, deadline
from fermion.engine import ask, connect, crc32c
from fermion.errors import on_local_disk
from fermion.exports import LoadedWhenAskedFor
from fermion.predicate import RowRanges
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.manifest import DeletionVector
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.json_codec import check_readable, content_hash
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.paths import deletion_path, unique_name
from fermion_table.storage.store import AtomicStore

if TYPE_CHECKING:
    import pyroaring
    from pyroaring import BitMap64
else:  # few tables have deletion vectors
    pyroaring = LoadedWhenAskedFor("pyroaring")

MAGIC = b"FDV1"
CHECKSUM_BYTES = 4
VECTOR_BYTES_MAX = 1 << 31
ROWS_AT_ONCE = 1 << 20
"""Rows of a bitmap that are spelled out at once."""
MEMORY_FACTOR = 2
"""Memory of a bitmap for a byte of its stored form, roughly; for the cache."""


def pack(bitmaps: Sequence[BitMap64]) -> tuple[bytes, list[tuple[int, int]]]:
    """Bitmaps as one file.

    Returns: The file's bytes, and offset and size of each vector in them.
    """
    parts, places, offset = [MAGIC], [], len(MAGIC)
    for bitmap in bitmaps:
        compact = bitmap.copy()
        compact.run_optimize()
        data = compact.serialize()
        parts += [crc32c(data).to_bytes(CHECKSUM_BYTES, "little"), data]
        places.append((offset, CHECKSUM_BYTES + len(data)))
        offset += CHECKSUM_BYTES + len(data)
    return b"".join(parts), places


def unpack(data: bytes, vector: DeletionVector, num_rows: int) -> BitMap64:
    """The bitmap of a vector from its stored bytes.

    vector: Where the bytes are from, and how many rows they should mark.
    Raises CorruptMetadata: Not what the entry says.
    """
    where = f"{vector.path}, offset {vector.offset}"
    if len(data) != vector.size or vector.size < CHECKSUM_BYTES:
        raise CorruptMetadata(where, f"a vector of {vector.size} bytes", f"{len(data)} bytes")
    stored, bitmap_bytes = int.from_bytes(data[:CHECKSUM_BYTES], "little"), data[CHECKSUM_BYTES:]
    found = crc32c(bitmap_bytes)
    if found != stored:
        raise CorruptMetadata(where, f"checksum {stored:08x}", f"{found:08x}")
    try:
        bitmap = pyroaring.BitMap64.deserialize(bitmap_bytes)
    except (ValueError, IndexError) as error:
        raise CorruptMetadata(where, "a roaring bitmap", str(error)) from error
    if len(bitmap) > num_rows:
        raise CorruptMetadata(where, f"at most {num_rows} deleted rows", str(len(bitmap)))
    if len(bitmap) != vector.rows:
        raise CorruptMetadata(where, f"{vector.rows} deleted rows", str(len(bitmap)))
    if bitmap and bitmap.max() >= num_rows:
        raise CorruptMetadata(where, f"rows below {num_rows}", f"row {bitmap.max()}")
    return bitmap


def write_vectors(
    store: AtomicStore,
    bitmaps: Mapping[str, BitMap64],
    num_rows: Mapping[str, int],
    owned: OwnedFiles | None = None,
) -> dict[str, DeletionVector]:
    """Store bitmaps, by data file, as one new file; durable on return.

    owned: Whose the file is; None: nobody owns it.
    Raises UnreadableMetadata: A bitmap that a reader would refuse, as it marks rows that its file
        does not have.
    """
    if not bitmaps:
        return {}
    path = deletion_path(unique_name())
    if owned is not None:
        owned.add(path)
    data, places = pack(list(bitmaps.values()))
    vectors = {
        file: DeletionVector(
            path=path,
            offset=offset,
            size=size,
            rows=len(bitmap),
            hash=content_hash(data[offset : offset + size]),
        )
        for (file, bitmap), (offset, size) in zip(bitmaps.items(), places, strict=True)
    }
    for file, vector in vectors.items():
        _check_vector(data, vector, num_rows[file])
    store.write(path, data)
    return vectors


def _check_vector(data: bytes, vector: DeletionVector, num_rows: int) -> None:
    """Read a vector back from the bytes of its file, before they are stored."""

    def decode(stored: bytes, path: str) -> BitMap64:
        return unpack(stored, vector, num_rows)

    check_readable(data[vector.offset : vector.offset + vector.size], vector.path, decode)


def read_vector(
    location: str,
    vector: DeletionVector,
    num_rows: int,
    storage_options: dict[str, Any] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> BitMap64:
    """A vector's bitmap, through the cache; not to be changed.

    location: Where its file lies.
    timeout_s: Seconds for reading it, a second time too, from a storage that is not local.
    Raises CorruptMetadata: Not what the entry says, or missing.
    """
    key = f"deletion vector {vector.hash} {location} {vector.offset}"
    found: BitMap64 | None = shared_cache.get(key)
    if found is None:
        if not 0 <= vector.size <= VECTOR_BYTES_MAX:
            raise CorruptMetadata(
                vector.path, f"at most {VECTOR_BYTES_MAX} bytes", f"{vector.size}"
            )
        with deadline(timeout_s):
            data = _read(location, vector, storage_options)
            if vector.hash and content_hash(data) != vector.hash:  # perhaps it was only sent wrong
                data = _read(location, vector, storage_options)
        if vector.hash and content_hash(data) != vector.hash:
            raise CorruptMetadata(vector.path, f"hash {vector.hash}", content_hash(data))
        found = unpack(data, vector, num_rows)
        shared_cache.put(key, found, MEMORY_FACTOR * vector.size)
    return found


def _read(location: str, vector: DeletionVector, storage_options: dict[str, Any] | None) -> bytes:
    try:
        if "://" not in location:
            with on_local_disk("read", location), open(location, "rb") as file:
                file.seek(vector.offset)
                return file.read(vector.size)
        filesystem, path = connect(location, storage_options)
        stop = vector.offset + vector.size
        return bytes(ask(filesystem, "cat_file", path, start=vector.offset, end=stop))
    except FileNotFoundError as error:
        raise CorruptMetadata(vector.path, "a file of deletion vectors", "no such file") from error


def bitmap_of(ranges: RowRanges) -> BitMap64:
    """A set of rows as a bitmap."""
    if ranges.total > 4 * len(ranges):
        bitmap = pyroaring.BitMap64()
        for start, stop in ranges:
            bitmap.add_range(start, stop)
        return bitmap
    return pyroaring.BitMap64(ranges.to_indices().astype(np.uint64))


def ranges_of(bitmap: BitMap64) -> RowRanges:
    """A bitmap as a set of rows.

    Runs of more than `ROWS_AT_ONCE` rows are never spelled out: a vector of a few bytes may mark
    billions of rows.
    """
    if len(bitmap) <= ROWS_AT_ONCE:
        return RowRanges.from_indices(_rows(bitmap))
    starts, stops, row, last = [], [], bitmap.min(), bitmap.max()
    while row <= last:
        row = bitmap.next_set_bit(row)
        end = row + ROWS_AT_ONCE
        if bitmap.contains_range(row, end):
            found = RowRanges.from_bounds([row], [end])
        else:
            window = pyroaring.BitMap64()
            window.add_range(row, end)
            found = RowRanges.from_indices(_rows(bitmap & window))
        starts.append(found.starts)
        stops.append(found.stops)
        row = end
    return RowRanges.from_bounds(np.concatenate(starts), np.concatenate(stops))


def _rows(bitmap: BitMap64) -> np.ndarray:
    return np.asarray(bitmap.to_array(), np.uint64).astype(np.int64)

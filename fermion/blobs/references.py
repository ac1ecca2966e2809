"""References to blobs: the struct that a column stores for each value, and what it says.

A blob column has the type that its user gave it and the metadata ``fermion:blob=true``. Its stored
field has the type `REFERENCE`, and the name of the user's type as the value of the metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from fermion import arrow_compute as pc
from fermion.columns.arrow_buffers import binary, list_ranges, own_validity
from fermion.columns.types import Bits
from fermion.columns.validity import to_flags
from fermion.errors import ChecksumError, InvalidFileError, UnsupportedTypeError
from fermion.exports import dataclass
from fermion.io.checksum import crc32c
from fermion.layout import BLOB_KEY, BLOB_PIECE_BYTES

REFERENCE = pa.struct(
    {
        "inline": pa.large_binary(),
        "file": pa.string(),
        "offset": pa.int64(),
        "size": pa.int64(),
        "checksums": pa.list_(pa.uint32()),
    }
)
"""What is stored for each value; the fields are explained in ``docs/format.md``."""
TYPES = {b"binary": pa.binary(), b"large_binary": pa.large_binary()}
SIZE_MAX = 2**62 - 1


def is_blob(field: pa.Field) -> bool:
    """Whether values of a column that is to be written are blobs."""
    return (field.metadata or {}).get(BLOB_KEY) == b"true"


def is_reference(field: pa.Field) -> bool:
    """Whether a stored column holds references to blobs."""
    return (field.metadata or {}).get(BLOB_KEY) in TYPES and field.type.equals(REFERENCE)


def stored_field(field: pa.Field, where: str) -> pa.Field:
    """What is stored for a blob column.

    Raises
    ------
    UnsupportedTypeError
        Its type is neither binary nor large_binary.
    """
    for name, dtype in TYPES.items():
        if field.type.equals(dtype):
            metadata = {**field.metadata, BLOB_KEY: name}
            return field.with_type(REFERENCE).with_metadata(metadata)
    raise UnsupportedTypeError(
        f"{where}: column {field.name!r} of blobs: expected the type binary or large_binary, found "
        f"{field.type}"
    )


def given_field(field: pa.Field) -> pa.Field:
    """The field that a stored field of references was made of; any other field as it is."""
    if not is_reference(field):
        return field
    metadata = {**field.metadata, BLOB_KEY: b"true"}
    return field.with_type(TYPES[field.metadata[BLOB_KEY]]).with_metadata(metadata)


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """What the references of a column say, checked.

    valid, is_outside: ``bool``, shape (rows,): whether there is a value, and whether it lies
        outside of the column.
    sizes, offsets: ``int64``, shape (rows,): bytes of each value, and where it starts; 0 where
        there is none.
    inline: Where each value in the column lies in ``data``: ``int64``, shape (rows + 1,).
    files: The name of each blob file, and ``int64`` rows of it; under None those of this file.
    checksums: ``uint32``, of all values; those of row i from ``starts[i]`` on, ``counts[i]`` many.
    """

    valid: np.ndarray
    is_outside: np.ndarray
    sizes: np.ndarray
    offsets: np.ndarray
    inline: np.ndarray
    data: np.ndarray
    files: Mapping[str | None, np.ndarray]
    checksums: np.ndarray
    starts: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, array: pa.StructArray, where: str) -> References:
        """The references of an array of the type `REFERENCE`.

        Raises InvalidFileError: One is none.
        """
        rows = len(array)
        valid = _flags(array)
        sizes, has_size = _numbers(array.field("size"))
        offsets, has_offset = _numbers(array.field("offset"))
        inline, sums = array.field("inline"), array.field("checksums")
        is_inline, has_sums = valid & _flags(inline), _flags(sums)
        held = binary(inline) if rows else None
        ends = np.zeros(1, np.int64) if held is None else held.offsets
        is_outside = valid & ~is_inline
        starts, counts = list_ranges(sums) if rows else (np.zeros(0, np.int64),) * 2
        counts = np.where(is_outside & has_sums, counts, 0)
        own_sizes, pieces = np.where(valid, sizes, 0), -(-sizes // BLOB_PIECE_BYTES)
        wrong = {
            "its size is missing": valid & ~has_size,
            f"its size is none from 0 to {SIZE_MAX}": (own_sizes < 0) | (own_sizes > SIZE_MAX),
            "it has other bytes than its size says": is_inline & (np.diff(ends) != sizes),
            "it has bytes and an offset, or neither": valid & (is_inline == has_offset),
            f"its offset is none from 0 to {SIZE_MAX}": is_outside
            & ((offsets < 0) | (offsets > SIZE_MAX)),
            "it has other checksums than its size says": is_outside & has_sums & (counts != pieces),
        }
        for what, found in wrong.items():
            if found.any():
                raise InvalidFileError(f"{where}: value {int(np.argmax(found))} of blobs: {what}")
        return cls(
            valid,
            is_outside,
            own_sizes,
            np.where(is_outside, offsets, 0),
            ends,
            np.zeros(0, np.uint8) if held is None else held.data,
            _by_file(array.field("file"), is_outside),
            np.zeros(0, np.uint32) if not rows else _numbers(sums.values)[0],
            starts,
            counts,
        )


def _flags(array: pa.Array) -> np.ndarray:
    return to_flags(own_validity(array), len(array))


def _numbers(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and which are there; a number that is not is 0."""
    there, form = _flags(array), np.dtype(array.type.to_pandas_dtype())
    if not there.any():
        return np.zeros(len(array), form), there
    place = array.offset * form.itemsize
    return np.where(there, np.frombuffer(array.buffers()[1], form, len(array), place), 0), there


def _by_file(names: pa.StringArray, is_outside: np.ndarray) -> dict[str | None, np.ndarray]:
    rows = np.flatnonzero(is_outside)
    if names.null_count == len(names):
        return {None: rows} if len(rows) else {}
    found: dict[str | None, list[int]] = {}
    listed = names.to_pylist()
    for row in rows.tolist():
        found.setdefault(listed[row], []).append(row)
    return {name: np.array(rows, np.int64) for name, rows in found.items()}


def with_nulls(dtype: pa.DataType, values: np.ndarray, valid: np.ndarray) -> pa.Array:
    """Numbers as an Arrow array, those that are not valid as nulls."""
    return pa.Array.from_buffers(dtype, len(values), [_packed(valid), pa.py_buffer(values)])


def bytes_of(dtype: pa.DataType, ends: np.ndarray, data: np.ndarray, valid: np.ndarray) -> pa.Array:
    """Bytes or texts as an Arrow array; ``ends``: ``int64``, shape (rows + 1,)."""
    wide = dtype.equals(pa.large_binary())
    if not wide and int(ends[-1]) >= 2**31:
        raise InvalidFileError(f"{int(ends[-1])} bytes of blobs in one array of {dtype}")
    buffers = [pa.py_buffer(ends if wide else ends.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(dtype, len(valid), [_packed(valid), *buffers])


def _packed(valid: np.ndarray) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(Bits.pack(valid).data)


def as_references(array: pa.Array) -> pa.StructArray:
    """References that hold the values of a binary array themselves; references as they are."""
    if array.type.equals(REFERENCE):
        return array
    values = array.cast(pa.large_binary())
    children = [pa.nulls(len(array), each.type) for each in REFERENCE]
    children[0], children[3] = values, pc.binary_length(values).cast(pa.int64())
    return struct_of(children, _flags(values))


def struct_of(children: Sequence[pa.Array], valid: np.ndarray) -> pa.StructArray:
    """References from the arrays of their fields."""
    return pa.Array.from_buffers(REFERENCE, len(valid), [_packed(valid)], children=list(children))


def check_pieces(data: memoryview, sums: np.ndarray, start: int, where: str) -> None:
    """Check bytes of a value, which begin a piece, by the checksums of all of its pieces.

    sums: Empty: the value has none.
    Raises ChecksumError.
    """
    first = start // BLOB_PIECE_BYTES
    for place, at in enumerate(range(0, len(data) if len(sums) else 0, BLOB_PIECE_BYTES), first):
        found = crc32c(data[at : at + BLOB_PIECE_BYTES])
        if found != sums[place]:
            raise ChecksumError(
                f"{where}, piece {place}: expected checksum {sums[place]:#010x}, "
                f"found {found:#010x}"
            )

"""Values of blob columns → references, with the bytes of long values where blobs go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa

from fermion.blobs.references import (
    REFERENCE,
    References,
    bytes_of,
    is_blob,
    is_reference,
    stored_field,
    struct_of,
    with_nulls,
)
from fermion.columns.arrow_buffers import binary, own_validity
from fermion.columns.validity import to_flags
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.io.checksum import crc32c
from fermion.layout import BLOB_PIECE_BYTES


class BlobSink(Protocol):
    """Where the bytes of blobs go."""

    def write_blob(self, value: memoryview) -> tuple[str, int]:
        """Write a value.

        Parameters
        ----------
        value
            Bytes, valid during the call.

        Returns
        -------
        The name of the blob file, and the offset there.
        """


@dataclass(frozen=True, slots=True)
class BlobWriter:
    """Puts the values of blob columns where they go.

    columns: The stored field of each blob column, by its ordinal.
    given: The ordinals of those whose references are given.
    inline_bytes: A value of at most so many bytes stays in its column.
    sink: Where longer ones go; None: into the file itself.
    """

    columns: Mapping[int, pa.Field]
    given: frozenset[int]
    inline_bytes: int
    sink: BlobSink | None
    has_checksums: bool
    where: str

    def stored(self, batch: pa.RecordBatch, put: Callable[[memoryview], int]) -> pa.RecordBatch:
        """A batch with references in place of values.

        put: Writes a value into the file itself, and says at which offset.
        Raises InvalidArgumentError: A reference that is given is none, or is to a value of another
            Fermion file.
        """
        arrays, fields = batch.columns, list(batch.schema)
        for ordinal, field in self.columns.items():
            if ordinal in self.given:
                self._check(field.name, arrays[ordinal])
            else:
                arrays[ordinal], fields[ordinal] = self.written(arrays[ordinal], put), field
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, batch.schema.metadata))

    def _check(self, name: str, array: pa.StructArray) -> None:
        try:
            own = None in References.of(array, self.where).files
        except ValueError as error:
            raise InvalidArgumentError(f"column {name!r}: {error}") from error
        if own:
            raise InvalidArgumentError(
                f"{self.where}: column {name!r}: expected references to blob files, found one to "
                "a value within the file that it was read from"
            )

    def written(
        self, array: pa.Array, put: Callable[[memoryview], int] | None = None
    ) -> pa.StructArray:
        """References to the values of a binary array, which are written.

        put: As of `stored`; None: there is a sink.
        """
        rows = len(array)
        valid = to_flags(own_validity(array), rows)
        values = binary(array) if rows else None
        ends = np.zeros(1, np.int64) if values is None else values.offsets
        data = np.zeros(0, np.uint8) if values is None else values.data
        sizes = np.where(valid, np.diff(ends), 0)
        is_inline = valid & (sizes <= self.inline_bytes)
        outside = np.flatnonzero(valid & ~is_inline)
        offsets, counts = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        names, sums = [b""] * rows, list[int]()
        has_name = np.zeros(rows, bool)
        for row, start, size in zip(
            outside.tolist(), ends[outside].tolist(), sizes[outside].tolist(), strict=True
        ):
            value = data[start : start + size].data
            if self.sink is None:
                assert put is not None
                offsets[row] = put(value)
            else:
                name, offsets[row] = self.sink.write_blob(value)
                names[row], has_name[row] = name.encode(), True
            if self.has_checksums:
                pieces = range(0, size, BLOB_PIECE_BYTES)
                sums += [crc32c(value[at : at + BLOB_PIECE_BYTES]) for at in pieces]
                counts[row] = len(pieces)
        starts = ends[:-1][is_inline].tolist()
        kept = zip(starts, sizes[is_inline].tolist(), strict=True)
        held = [data[start : start + size] for start, size in kept]
        list_ends = np.append(0, np.cumsum(counts)).astype(np.int32)
        has_sums = is_outside = valid & ~is_inline
        if not self.has_checksums:
            has_sums = np.zeros(rows, bool)
        return struct_of(
            [
                bytes_of(
                    pa.large_binary(),
                    np.append(0, np.cumsum(np.where(is_inline, sizes, 0))),
                    np.concatenate([data[:0], *held]),
                    is_inline,
                ),
                bytes_of(
                    pa.string(),
                    np.append(0, np.cumsum([*map(len, names)], dtype=np.int64)),
                    np.frombuffer(b"".join(names), np.uint8),
                    has_name,
                ),
                with_nulls(pa.int64(), offsets, is_outside),
                with_nulls(pa.int64(), sizes, valid),
                pa.Array.from_buffers(
                    REFERENCE.field("checksums").type,
                    rows,
                    [
                        with_nulls(pa.int8(), np.zeros(rows, np.int8), has_sums).buffers()[0],
                        pa.py_buffer(list_ends),
                    ],
                    children=[
                        with_nulls(pa.uint32(), np.array(sums, np.uint32), np.ones(len(sums), bool))
                    ],
                ),
            ],
            valid,
        )


def blob_fields(schema: pa.Schema, where: str) -> tuple[dict[int, pa.Field], frozenset[int]]:
    """The stored field of each blob column, by its ordinal; and those that are stored ones.

    Raises UnsupportedTypeError.
    """
    fields, given = {}, set()
    for ordinal, field in enumerate(schema):
        if is_reference(field):
            fields[ordinal] = field
            given.add(ordinal)
        elif is_blob(field):
            fields[ordinal] = stored_field(field, where)
    return fields, frozenset(given)

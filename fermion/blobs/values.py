"""References → the bytes of blobs: joined requests, checked piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from fermion.blobs.references import (
    References,
    bytes_of,
    check_pieces,
    given_field,
    is_reference,
    struct_of,
)
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.io.source import CountingSource, Source
from fermion.layout import BLOB_ALIGNMENT, HEAD
from fermion.options import BlobForm

if TYPE_CHECKING:
    from fermion.blobs import handle
else:
    handle = LoadedWhenAskedFor("fermion.blobs.handle")

BATCH_BYTES = 32 * 1024 * 1024
"""Of blobs in a batch, but for a longer value."""
RESULT_BYTES = 256 * 1024 * 1024
"""The same where the result is one table: more requests are joined, or sent side by side."""


class BlobFiles(Protocol):
    """The blob files that references name."""

    def open_blob_file(self, name: str) -> Source:
        """A blob file, to be read by ranges; it is closed after use.

        Its ``size`` is its size, where that is known: values outside of it are refused.
        """

    def blob_path(self, name: str) -> str:
        """The path or URL of a blob file, for handles; no request is made."""


@dataclass(frozen=True, slots=True)
class BlobValues:
    """Reads the values that references of a file mean.

    end: Where the values within the file end.
    verify: Whether checksums are checked.
    files: Opens blob files; None: there are none.
    path, storage_options: What opens the file again, for handles; None: nothing does.
    """

    where: str
    source: CountingSource
    end: int
    verify: bool
    files: BlobFiles | None = None
    path: str | None = None
    storage_options: dict[str, Any] | None = None

    def schema(self, schema: pa.Schema, blobs: BlobForm) -> pa.Schema:
        """The schema of results whose columns are stored so."""
        if blobs == "references":
            return schema
        fields = list(map(given_field, schema))
        if blobs == "handles":
            dtype = handle.handle_type(self.storage_options)
            fields = [
                field.with_type(dtype) if is_reference(stored) else field
                for field, stored in zip(fields, schema, strict=True)
            ]
        return pa.schema(fields, metadata=schema.metadata)

    def batches(
        self,
        batch: pa.RecordBatch,
        blobs: BlobForm,
        schema: pa.Schema,
        *,
        repeats: bool = False,
        bytes_max: int = BATCH_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """A batch of stored columns as a caller wants them, in parts if its blobs are large.

        schema: That of the result.
        repeats: Whether rows may come more than once.
        bytes_max: Of the blobs of a part, but for a longer value.
        """
        ordinals = [place for place, field in enumerate(batch.schema) if is_reference(field)]
        if blobs == "references" or not ordinals:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
            return
        found = [References.of(batch.column(each), self.where) for each in ordinals]
        for each in found if not repeats else ():
            self._check_places(None, self.source.source, each, unique=True)
        if blobs == "handles":
            columns = batch.columns
            for at, each in zip(ordinals, found, strict=True):
                columns[at] = self._handles(columns[at], each, schema.field(at).type)
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
            return
        sizes = np.sum([each.sizes for each in found], axis=0, dtype=np.float64)
        start, ends = 0, np.cumsum(sizes)
        while start < batch.num_rows or not batch.num_rows:
            below = ends[start - 1] if start else 0.0
            stop = int(np.searchsorted(ends, below + bytes_max, side="right"))
            stop = max(stop, start + 1) if batch.num_rows else 0
            part = batch.slice(start, stop - start)
            columns = part.columns
            for at in ordinals:
                references = References.of(columns[at], self.where)
                columns[at] = self.read(references, schema.field(at).type)
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
            if stop >= batch.num_rows:
                return
            start = stop

    def read(self, references: References, dtype: pa.DataType) -> pa.Array:
        """The values of references, as an array of a type; requests are joined.

        Raises InvalidFileError, ChecksumError, TruncatedFileError, InvalidArgumentError.
        """
        sizes, parts = references.sizes, dict[int, memoryview]()
        for name, rows in references.files.items():
            parts.update(zip(rows.tolist(), self._read_file(name, references, rows), strict=True))
        ends = np.append(0, np.cumsum(sizes))
        if not parts and np.array_equal(ends, references.inline):
            return bytes_of(dtype, ends, references.data, references.valid)
        data = np.empty(int(ends[-1]), np.uint8)
        for row, (start, stop) in enumerate(pairwise(ends.tolist())):
            if row in parts:
                data[start:stop] = parts[row]
            elif stop > start:
                at = references.inline[row]
                data[start:stop] = references.data[at : at + stop - start]
        return bytes_of(dtype, ends, data, references.valid)

    def _handles(
        self, array: pa.StructArray, references: References, dtype: pa.DataType
    ) -> pa.ExtensionArray:
        """References with a path or URL in place of the name of a file."""
        rows = len(array)
        self._check_places(None, self.source.source, references)
        paths = [b""] * rows
        for name, own in references.files.items():
            path = self._path(name).encode()
            for row in own.tolist():
                paths[row] = path
        ends = np.append(0, np.cumsum([*map(len, paths)], dtype=np.int64))
        data = np.frombuffer(b"".join(paths), np.uint8)
        children = [array.field(at) for at in range(array.type.num_fields)]
        children[1] = bytes_of(pa.string(), ends, data, references.is_outside)
        return pa.ExtensionArray.from_storage(dtype, struct_of(children, references.valid))

    def _path(self, name: str | None) -> str:
        if name is not None and self.files is not None:
            return self.files.blob_path(name)
        if name is not None or self.path is None:
            raise InvalidArgumentError(
                f"{self.where}: a value has no path or URL that a handle could open; expected a "
                "file that was opened by its path, and a reader of its blob files"
            )
        return self.path

    def check_apart(self, columns: Iterable[References]) -> None:
        """Refuse values within the file that overlap, or that several references mean.

        Raises InvalidFileError.
        """
        places = [np.zeros((0, 2), np.int64)]
        for each in columns:
            rows = each.files.get(None, np.zeros(0, np.int64))
            places.append(np.stack((each.offsets[rows], each.sizes[rows]), axis=1))
        found = np.concatenate(places)
        found = found[np.argsort(found[:, 0])]
        if (found[1:, 0] < found[:-1].sum(axis=1)).any():
            raise InvalidFileError(f"{self.where}: blobs overlap")

    def check(self, references: References) -> None:
        """Read and check every value within the file; for verification.

        Raises InvalidFileError, ChecksumError, TruncatedFileError.
        """
        rows = references.files.get(None, np.zeros(0, np.int64))
        if (references.offsets[rows] % BLOB_ALIGNMENT).any():
            raise InvalidFileError(
                f"{self.where}: expected blobs at multiples of {BLOB_ALIGNMENT}, found another"
            )
        self._check_places(None, self.source.source, references, unique=True)
        together, held = list[int](), 0
        for row in rows[np.argsort(references.offsets[rows])].tolist():
            size = int(references.sizes[row])
            if together and held + size > BATCH_BYTES:
                self._read(self.source, references, together)
                together, held = [], 0
            if size <= BATCH_BYTES:
                together.append(row)
                held += size
                continue
            for start in range(0, size, BATCH_BYTES):
                self._read(self.source, references, [row], start, min(start + BATCH_BYTES, size))
        self._read(self.source, references, together)

    def _read_file(
        self, name: str | None, references: References, rows: np.ndarray
    ) -> list[memoryview]:
        if name is None:
            self._check_places(None, self.source.source, references)
            return self._read(self.source, references, rows.tolist())
        if self.files is None:
            raise InvalidArgumentError(
                f"{self.where}: a value lies in the blob file {name!r}; expected a reader that was "
                "told how to open blob files"
            )
        source = self.files.open_blob_file(name)
        try:
            self._check_places(name, source, references)
            return self._read(self.source.of(source), references, rows.tolist())
        finally:
            source.close()

    def _check_places(
        self,
        name: str | None,
        source: Source,
        references: References,
        *,
        unique: bool = False,
    ) -> None:
        """Refuse values outside of where they may be, and more bytes than there are."""
        first, end = (HEAD.itemsize, self.end) if name is None else (0, source.size)
        rows = references.files.get(name, np.zeros(0, np.int64))
        rows = rows[np.argsort(references.sizes[rows], kind="stable")[::-1]]  # the largest first
        offsets, one = np.unique(references.offsets[rows], return_index=True)
        sizes = references.sizes[rows[one]]
        if end is None:
            return
        outside = (offsets < first) | (offsets + sizes > end)
        if outside.any():
            at = int(np.argmax(outside))
            raise InvalidFileError(
                f"{self.where}: a blob at {offsets[at]} of {sizes[at]} bytes, expected one from "
                f"{first} to {end}" + (f" of {name!r}" if name is not None else "")
            )
        repeated = unique and len(offsets) < len(rows)
        if repeated or (offsets[1:] < offsets[:-1] + sizes[:-1]).any():
            raise InvalidFileError(f"{self.where}: blobs overlap")

    def _read(
        self,
        source: CountingSource,
        references: References,
        rows: Sequence[int],
        start: int = 0,
        stop: int | None = None,
    ) -> list[memoryview]:
        """The bytes of some values from ``start``, which begins a piece, to ``stop``."""
        offsets, sizes = references.offsets, references.sizes
        stops = [int(sizes[row]) if stop is None else stop for row in rows]
        ranges = [
            (int(offsets[row]) + start, end - start) for row, end in zip(rows, stops, strict=True)
        ]

        def checked(buffers: list[memoryview]) -> list[memoryview]:
            for row, data in zip(rows if self.verify else (), buffers, strict=self.verify):
                at = int(references.starts[row])
                sums = references.checksums[at : at + int(references.counts[row])]
                check_pieces(data, sums, start, f"{source.source.name}: blob at {offsets[row]}")
            return buffers

        return source.read_checked(ranges, checked)

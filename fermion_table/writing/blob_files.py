"""Blob files: large values of the rows of a data file, one after another.

=======  =====  =========  ========================================================================
offset   bytes  name       meaning
=======  =====  =========  ========================================================================
0        8      magic      ``FRMNBLOB``
8        4      version    1, little endian
12       52                zeros
64       ...    values     each at a multiple of 64, zeros between them; as they were given
=======  =====  =========  ========================================================================

Where a value lies, its size and its checksums are in the reference that the data file holds; how
many bytes the file has is in the entry.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from fermion import arrow_compute as pc
from fermion.blobs import (
    BlobWriter,
    Handle,
    is_reference,
    values_of,
)
from fermion.engine import numbers_of, open_sink
from fermion.layout import BLOB_ALIGNMENT
from fermion_table.metadata.manifest import BlobFile, KnownBlobs
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.paths import blob_path, unique_name

if TYPE_CHECKING:
    from fermion import WriteOptions
    from fermion.engine import Sink

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)
HEAD = struct.pack("<8sI52x", b"FRMNBLOB", 1)


class BlobFilesWriter:
    """Where the blobs of one data file go: a `fermion.blobs.BlobSink`.

    owned: Gets its files.
    size_max: A file that has so many bytes gets no more values.
    options: What values are put there by.
    known: Blob files that rows have references to; None: rows have values.
    """

    def __init__(
        self,
        owned: OwnedFiles,
        size_max: int,
        options: WriteOptions,
        known: KnownBlobs | None,
    ) -> None:
        self._owned, self._store = owned, owned.store
        self._size_max, self._is_durable = size_max, options.durable
        has_checksums = options.checksum != "none"
        self._values = BlobWriter(
            {}, frozenset(), options.blob_inline_bytes, self, has_checksums, "a table"
        )
        self._known = known
        self._live: dict[str, int] = {}
        self._done: list[BlobFile] = []
        self._moving: dict[str | None, Any] = {}  # open files, by path
        self._sink: Sink | None = None
        self._path, self._size, self._live_bytes = "", 0, 0

    def write_blob(self, value: memoryview) -> tuple[str, int]:
        """See `fermion.blobs.BlobSink`."""
        if self._sink is None:
            self._path = blob_path(unique_name())
            self._owned.add(self._path)
            self._sink = open_sink(
                self._store.locate(self._path, for_writing=True),
                durable=self._is_durable,
                storage_options=self._store.storage_options,
            )
            self._owned.add(self._path, self._sink)
            self._sink.write(HEAD)
            self._size, self._live_bytes = len(HEAD), 0
        gap = -self._size % BLOB_ALIGNMENT
        self._sink.write(bytes(gap))
        self._sink.write(value)
        offset = self._size + gap
        self._size = offset + len(value)
        self._live_bytes += len(value)
        name = self._path.rpartition("/")[2]
        if self._size >= self._size_max:
            self._finish()
        return name, offset

    def placed(self, rows: Rows) -> Rows:
        """Rows with references to where values lie now; it is noted to which they refer.

        Long values that references hold themselves are written.
        """
        if self._known is None or not rows.num_rows:
            return rows
        if isinstance(rows, pa.Table):
            return pa.Table.from_batches(map(self.placed, rows.to_batches()), rows.schema)
        arrays = rows.columns
        for place, field in enumerate(rows.schema):
            if is_reference(field):
                arrays[place] = self._placed(arrays[place], self._known)
        return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)

    def _placed(self, references: pa.StructArray, known: KnownBlobs) -> pa.StructArray:
        inline, files, offsets, sizes, sums = references.flatten()
        encoded = files.dictionary_encode()
        is_outside = numbers_of(files.is_valid())
        codes = numbers_of(encoded.indices.fill_null(0))
        live = np.bincount(codes[is_outside], numbers_of(sizes.fill_null(0))[is_outside])
        names = encoded.dictionary.to_pylist()
        for name, size in zip(names, live.tolist(), strict=False):
            if name not in known.moved:
                self._live[name] = self._live.get(name, 0) + int(size)
        is_moved = is_outside & np.isin(
            codes, [names.index(each) for each in known.moved & {*names}]
        )
        if is_moved.any():
            rows, options = np.flatnonzero(is_moved).tolist(), self._store.storage_options
            new_files, new_offsets = files.to_pylist(), offsets.to_pylist()
            handles = (
                Handle(
                    self._store.locate(known.files[new_files[row]].path),
                    new_offsets[row],
                    sizes[row].as_py(),
                    tuple(sums[row].as_py() or ()),
                    None,
                    options,
                )
                for row in rows
            )
            for row, value in zip(rows, values_of(handles, self._moving), strict=True):
                new_files[row], new_offsets[row] = self.write_blob(memoryview(value))
            columns = [inline, pa.array(new_files, files.type), pa.array(new_offsets, offsets.type)]
            references = pa.StructArray.from_arrays(
                [*columns, sizes, sums], fields=list(references.type), mask=references.is_null()
            )
        lengths = numbers_of(pc.binary_length(inline).fill_null(0))
        if lengths.max(initial=0) <= self._values.inline_bytes:
            return references
        holds = numbers_of(inline.is_valid())
        others = references.filter(pa.array(~holds))
        order = np.arange(len(holds)) + len(others)  # of what is written for each row
        order[~holds] = np.arange(len(others))
        written = self._values.written(inline)
        return pa.concat_arrays([others, written]).take(pa.array(order))

    def close(self) -> tuple[BlobFile, ...]:
        """Finish the files, and describe all that the data file refers to."""
        self._finish()
        for source in self._moving.values():
            source.close()
        known = self._known or KnownBlobs({})
        kept = [
            msgspec.structs.replace(known.files[name], live_bytes=size)
            for name, size in self._live.items()
        ]
        return (*kept, *self._done)

    def _finish(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.commit()
            self._owned.add(self._path)
            made = BlobFile(path=self._path, size=self._size, live_bytes=self._live_bytes)
            self._done.append(made)

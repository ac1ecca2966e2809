"""An open Fermion file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fermion.arguments import flag, integer, integers, with_method
from fermion.columns.ranges import RowRanges
from fermion.columns.rows import empty_columns, take_rows
from fermion.display import html_facts, html_table, location_text, type_text
from fermion.errors import InvalidArgumentError, file_is_closed
from fermion.exports import LoadedWhenAskedFor
from fermion.forks import ThreadPool, cached_property
from fermion.io.source import (
    CountingSource,
    FilesystemSource,
    IoStats,
    LocalSource,
    PathLike,
    open_source,
)
from fermion.options import (
    BlobForm,
    ReadOptions,
    SortKey,
    blob_form,
    read_options,
    thread_count,
)
from fermion.reading.bounds import FilePruning, prune_file
from fermion.reading.index import FileIndex
from fermion.reading.projection import (
    ColumnName,
    Projected,
    bound_filter,
    keep_dictionaries,
    project,
)
from fermion.reading.projection import result_schema as schema_of
from fermion.reading.row_batches import RowBatches, Rows
from fermion.reading.stripe import Query, StripeFilter, StripeReader

if TYPE_CHECKING:
    from fermion.blobs import values as blob_values
    from fermion.blobs.values import BlobFiles, BlobValues
    from fermion.reading import column_metadata
    from fermion.reading import verify as verification
    from fermion.reading.column_metadata import ColumnMetadata
    from fermion.reading.verify import VerifyReport
    from fermion.training.reader import TrainingReader
    from fermion.typing import FilterLike
else:  # seldom asked for
    blob_values = LoadedWhenAskedFor("fermion.blobs.values")
    column_metadata = LoadedWhenAskedFor("fermion.reading.column_metadata")
    verification = LoadedWhenAskedFor("fermion.reading.verify")

# Of the page cache a request costs as much as copying some 10 kB, of a disk more than that.
LOCAL_GAP_AND_SPAN = 32 * 1024, 4 * 1024 * 1024  # bytes
REMOTE_GAP_AND_SPAN = 1024 * 1024, 16 * 1024 * 1024
# Requests side by side: they wait, so that there may be more of them than processors.
REMOTE_THREADS = 32


class FermionFile:
    """One open file: immutable, safe to share between threads, a context manager.

    Opening reads the end of the file; everything else is read when asked for. Results are new
    Arrow tables; only plain, uncompressed pages are views of the bytes read. Columns of a few rows
    may share memory, which is released with the last of them.

    A forked process goes on with the file that its parent opened. A pickled file is opened again
    where it is loaded, by its path (of a local file the absolute one) and its options; the pickle
    of a remote file holds its ``storage_options``, credentials too.
    """

    def __init__(
        self,
        path: PathLike | Any,
        *,
        options: ReadOptions | None = None,
        storage_options: dict[str, Any] | None = None,
        blob_files: BlobFiles | None = None,
    ) -> None:
        chosen = self.options = read_options(options)
        with_method(blob_files, "blob_files", "open_blob_file")
        source = open_source(
            path, storage_options, timeout_s=chosen.timeout_s, memory_map=chosen.memory_map
        )
        local = source.is_local
        gap, span = chosen.coalesce_gap_bytes, chosen.coalesce_span_bytes
        usual_gap, usual_span = LOCAL_GAP_AND_SPAN if local else REMOTE_GAP_AND_SPAN
        threads = thread_count(self.options.threads)
        if not local and self.options.threads is None:
            threads = max(threads, REMOTE_THREADS)
        self._executor = ThreadPool(threads) if threads > 1 else None
        counting = CountingSource(
            source,
            gap_bytes_max=gap if gap is not None else usual_gap,
            span_bytes_max=span or usual_span,
            executor=None if local else self._executor,
        )
        try:
            with counting.in_time():
                self._index = FileIndex(counting, self.options)
        except BaseException:
            source.close()
            if self._executor is not None:
                self._executor.shutdown(wait=False)
            raise
        self._stripes = StripeReader(self._index, self._executor)
        self._rows = RowBatches(self._index, self._stripes, self._executor)
        self._storage_options, self._blob_files = storage_options, blob_files
        self._place: str | None = None  # what opens the file again, from any directory
        if isinstance(source, LocalSource):
            name = source.name
            self._place = name if os.path.isabs(name) else os.path.abspath(name)
        elif isinstance(source, FilesystemSource):
            self._place = os.fspath(path)
        self._is_closed = False

    def __reduce__(self) -> tuple[Callable[[], FermionFile], tuple[()]]:
        self._check_open()
        if self._place is None:
            raise TypeError(
                f"{self._index.where}: a file that was opened from bytes can't be pickled; "
                "expected one that was opened by its path or URL"
            )
        place = Path(self._place) if self._index.is_local else self._place
        storage_options, blob_files = self._storage_options, self._blob_files
        opener = partial(type(self), place, options=self.options, storage_options=storage_options)
        return partial(opener, blob_files=blob_files), ()

    def _check_open(self) -> None:
        if self._is_closed:
            raise file_is_closed(self._index.where)

    def __enter__(self) -> FermionFile:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the file and its threads; a second call does nothing."""
        self._is_closed = True
        if self._executor is not None:
            self._executor.shutdown(wait=False)
        self._index.source.source.close()

    def __repr__(self) -> str:
        return (
            f"<FermionFile {location_text(self._index.where)}: {self.num_rows} rows, "
            f"{self.num_columns} columns, {self.num_stripes} stripes"
            f"{', closed' if self._is_closed else ''}>"
        )

    def _repr_html_(self) -> str:
        return file_html(self._index, None if self._is_closed else self.schema)

    def layout_html(self, *, pages: bool = False) -> str:
        """A web page with a map of the file's bytes: columns by stripes, with search and zoom.

        It needs no other file and no network. It shows each column's least and greatest value. With
        ``pages`` every page is read, for its whole tree of encodings.

        Raises
        ------
        ChecksumError, InvalidFileError, TypeError, UnsupportedEncodingError
        """
        from fermion.reading.layout_map import layout_page  # slow to load, and rarely asked for

        self._check_open()
        return layout_page(self._index, pages=flag(pages, "pages"))

    @property
    def schema(self) -> pa.Schema:
        """The exact Arrow schema, parsed on first use."""
        return self._as_given(self._index.schema, "bytes")

    @cached_property
    def _blobs(self) -> BlobValues:
        """What reads the values of blob columns."""
        index = self._index
        return blob_values.BlobValues(
            index.where,
            index.source,
            index.footer.cmb_offset,
            index.options.verify_checksums,
            self._blob_files,
            self._place,
            self._storage_options,
        )

    def _as_given(self, schema: pa.Schema, blobs: BlobForm) -> pa.Schema:
        """The schema of results whose columns are stored so."""
        return self._blobs.schema(schema, blobs) if self._index.footer.has_blobs else schema

    @property
    def num_rows(self) -> int:
        """Rows of the file."""
        return self._index.footer.num_rows

    @property
    def num_columns(self) -> int:
        """Top-level columns, without the batch column."""
        return self._index.footer.num_columns

    @property
    def num_stripes(self) -> int:
        """Stripes of the file."""
        return self._index.footer.num_stripes

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor version of the format that the file was written in."""
        return self._index.footer.major, self._index.footer.minor

    @property
    def file_id(self) -> str | None:
        """The unique identity of the file: 32 hexadecimal digits; None for version 1.0."""
        return self._index.footer.file_id

    @property
    def settings(self) -> dict[str, Any]:
        """The settings in the footer, by name."""
        return self._index.footer.described_settings

    @property
    def sort_order(self) -> tuple[SortKey, ...]:
        """The declared sort order of the rows, most significant key first; may be empty."""
        return tuple(key for _, key in self._index.sort_order)

    @property
    def created_by(self) -> str:
        """The program that wrote the file."""
        return self._index.footer.created_by

    @property
    def key_value_metadata(self) -> dict[str, str]:
        """User metadata; a copy."""
        return dict(self._index.key_value_metadata)

    @property
    def io_stats(self) -> IoStats:
        """Requests and bytes since `open`."""
        return self._index.source.stats

    @property
    def index(self) -> FileIndex:
        """The metadata of the file; for tools that need more than columns."""
        return self._index

    @property
    def stripe_rows(self) -> tuple[int, ...]:
        """Rows of each stripe."""
        return tuple(self._index.stripe_rows.tolist())

    def column(self, name: ColumnName) -> ColumnMetadata:
        """Streams, stripes, pages, encodings and statistics of a column.

        It reads the column's metadata and, to verify them, all of its pages; of a file opened
        with ``verify_checksums=False`` their headers only.

        Raises
        ------
        ColumnNotFoundError
        ChecksumError, InvalidFileError
            A page is damaged, or from another place.
        InvalidArgumentError
            For a virtual column of batch mode.
        """
        self._check_open()
        if not isinstance(name, (str, tuple)):
            name = integer(name, "name")
        (projected,) = project(self._index, [name])
        if projected.node is None:
            raise InvalidArgumentError(
                f"{self._index.where}: column {name!r} is computed from the batches, not stored"
            )
        return column_metadata.describe_column(self._index, projected)

    def verify(self) -> VerifyReport:
        """Check every checksum and every invariant of the stored file; reads all of it."""
        self._check_open()
        return verification.verify_again(self._index)

    def read(
        self,
        columns: Sequence[ColumnName] | None = None,
        *,
        filter: FilterLike | None = None,
        rows: Rows | None = None,
        blobs: BlobForm = "bytes",
    ) -> pa.Table:
        """Read rows as a table.

        Parameters
        ----------
        columns
            Names, patterns (``"f_*"``), paths into structs (``"s.a"`` or tuples), ordinals; parts
            of Variant columns (``col("event")["user"]["id"].cast(pa.int64())``, or the text that
            is then the name: ``"variant_get(event, '$.user.id', 'bigint')"``); None: all. In batch
            mode also ``batch_id`` and ``index_in_batch``. An empty list gives the row count alone.
        filter
            Rows to keep: `fermion.col` expressions, SQL text, tuples, or a pyarrow expression.
        rows
            (start, stop), stop exclusive, or any set of rows; before filtering.
        blobs
            What comes of blob columns: their ``bytes``; ``handles``, whose ``to_pylist()`` gives a
            `fermion.blobs.Handle` for each value, which reads it when it is asked to; or
            ``references`` as they are stored.

        Raises
        ------
        ColumnNotFoundError, InvalidArgumentError, InvalidFileError, TruncatedFileError
        """
        form = blob_form(blobs)
        query = self._ask(columns, filter, rows)
        batches = list(self._rows.stripes(query))
        return self._with_blobs(self._table(query.columns, batches, columns is None), form)

    def iter_batches(
        self,
        columns: Sequence[ColumnName] | None = None,
        *,
        filter: FilterLike | None = None,
        rows: Rows | None = None,
        batch_size: int = 65_536,
        blobs: BlobForm = "bytes",
    ) -> Iterator[pa.RecordBatch]:
        """Read in record batches of at most ``batch_size`` rows, and of 32 MiB of blobs.

        Of a local file four batches and 32 MiB are held at most, however large its stripes are.
        Parameters and errors are those of `read`.
        """
        size, form = integer(batch_size, "batch_size", minimum=1), blob_form(blobs)
        query = self._ask(columns, filter, rows)
        schema = self._result_schema(query.columns, columns is None)
        pieces = self._pieces(query, schema, size)
        if not self._index.footer.has_blobs or form == "references":
            return pieces
        given = self._as_given(schema, form)
        return (part for piece in pieces for part in self._blobs.batches(piece, form, given))

    def _pieces(self, query: Query, schema: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
        """The batches of `iter_batches`, whose arguments were checked when it was called."""
        for window in self._rows.windows(query, size):
            named = _renamed(window, schema) if query.columns else window
            for start in range(0, named.num_rows, size):
                yield named.slice(start, size)
            del window, named  # the next one is read in their place
            self._check_open()

    def _ask(
        self, columns: Sequence[ColumnName] | None, filter: FilterLike | None, rows: Rows | None
    ) -> Query:
        """What `RowBatches` is asked for; raises what is wrong with the arguments."""
        self._check_open()
        wanted = None if rows is None else self._rows.wanted(rows)
        return Query(self._project(columns), bound_filter(self._index, filter), wanted)

    def _table(
        self, projected: Sequence[Projected], batches: Sequence[pa.RecordBatch], everything: bool
    ) -> pa.Table:
        schema = self._result_schema(projected, everything)
        if not projected:
            rows = empty_columns(sum(each.num_rows for each in batches))
            return pa.Table.from_batches([rows.replace_schema_metadata(schema.metadata)])
        return pa.Table.from_batches([_renamed(each, schema) for each in batches], schema=schema)

    def _with_blobs(self, table: pa.Table, blobs: BlobForm, *, repeats: bool = False) -> pa.Table:
        """A table as a caller wants its blobs."""
        if not self._index.footer.has_blobs or blobs == "references":
            return table
        schema = self._as_given(table.schema, blobs)
        if schema.equals(table.schema):
            return table
        return pa.Table.from_batches(
            (
                part
                for batch in table.to_batches()
                for part in self._blobs.batches(
                    batch, blobs, schema, repeats=repeats, bytes_max=blob_values.RESULT_BYTES
                )
            ),
            schema=schema,
        )

    def _project(self, columns: Sequence[ColumnName] | None) -> list[Projected]:
        projected = project(self._index, columns)
        if self.options.keep_dictionaries:
            return keep_dictionaries(self._index, projected)
        return projected

    def _result_schema(self, projected: Sequence[Projected], everything: bool) -> pa.Schema:
        if everything and not self.options.keep_dictionaries:
            return self._index.schema
        return schema_of(projected, self._index.schema_metadata)

    def count(self, filter: FilterLike | None = None, *, rows: Rows | None = None) -> int:
        """Count the rows that a filter selects; reads no data if statistics decide it."""
        if filter is not None:
            return self.find(filter, rows=rows).total
        self._check_open()
        return self.num_rows if rows is None else self._rows.wanted(rows).total

    def find(self, filter: FilterLike | None, *, rows: Rows | None = None) -> RowRanges:
        """Find the rows that a filter selects; reads no data if statistics decide it.

        Parameters and errors are those of `read`.
        """
        self._check_open()
        bound = bound_filter(self._index, filter)
        wanted = None if rows is None else self._rows.wanted(rows)
        if bound.expression is None:
            return RowRanges.all(self.num_rows) if wanted is None else wanted
        starts = self._index.stripe_starts.tolist()
        found = [RowRanges.empty()]
        for stripe, within in self._rows.by_stripe(wanted):
            inside = StripeFilter(self._stripes, stripe, bound).find(within)
            found.append(inside.shift(starts[stripe]))
        return RowRanges.from_bounds(
            np.concatenate([each.starts for each in found]),
            np.concatenate([each.stops for each in found]),
        )

    def prune(
        self,
        filter: FilterLike | None = None,
        *,
        columns: Sequence[ColumnName] | None = None,
        rows: Rows | None = None,
    ) -> FilePruning:
        """Count the stripes, pages and rows that statistics do not exclude; reads metadata only.

        Parameters and errors are those of `read`.
        """
        self._check_open()
        bound = bound_filter(self._index, filter)
        wanted = None if rows is None else self._rows.wanted(rows)
        return prune_file(
            self._index,
            self._stripes.bounds,
            bound,
            project(self._index, columns),
            list(self._rows.by_stripe(wanted)),
        )

    def take(
        self,
        indices: Sequence[int] | np.ndarray | pa.Array,
        *,
        columns: Sequence[ColumnName] | None = None,
        blobs: BlobForm = "bytes",
    ) -> pa.Table:
        """Read rows by number, in any order, with repeats; reads only the pages that contain them.

        Columns and blobs are those of `read`.

        Raises
        ------
        InvalidArgumentError
            For a number outside 0 to ``num_rows``.
        """
        self._check_open()
        form, wanted = blob_form(blobs), integers(indices, "indices")
        outside = wanted[(wanted < 0) | (wanted >= self.num_rows)]
        if len(outside):
            raise InvalidArgumentError(
                f"{self._index.where}: row {outside[0]} of {self.num_rows} rows"
            )
        unique, places = np.unique(wanted, return_inverse=True)
        projected = self._project(columns)
        batches = list(self._rows.numbered(projected, unique))
        if not projected:
            batches = [empty_columns(len(wanted))]
        found = self._table(projected, batches, columns is None)
        if projected and not np.array_equal(places, np.arange(len(unique))):
            pairs = zip(found.columns, projected, strict=True)
            taken = [take_rows(array, places, column.node) for array, column in pairs]
            found = pa.Table.from_arrays(taken, schema=found.schema)
        return self._with_blobs(found, form, repeats=True)

    def training(
        self,
        columns: Sequence[ColumnName] | None = None,
        *,
        filter: FilterLike | None = None,
        **options: Any,
    ) -> TrainingReader:
        """Rows for training a model, shuffled, as any number of ranks and workers share them.

        Parameters
        ----------
        columns, filter
            As of `read`. Rows that the filter does not select are left out of the batches.
        options
            Those of `fermion_table.Scan.training`; ``batch_rows`` is needed.

        Raises
        ------
        ColumnNotFoundError
        InvalidArgumentError
            An argument has a value that is not possible here.
        TypeError
        """
        # Not at the top: few who read files train, and others should not wait for the import.
        from fermion.reading.training_blocks import FileBlocks
        from fermion.training.reader import TrainingOptions, TrainingReader

        return TrainingReader(FileBlocks(self, columns, filter), TrainingOptions(**options))

    def batches(self) -> tuple[np.ndarray, np.ndarray]:
        """Every batch of a file in batch mode, in order: its id and its rows, ``int64`` each.

        Raises
        ------
        InvalidArgumentError
            When the file was not written in batch mode.
        """
        self._check_in_batches()
        found = [self._stripes.bounds.batches.stripe(stripe) for stripe in range(self.num_stripes)]
        ids = [np.zeros(0, np.int64), *(each for each, _ in found)]
        return np.concatenate(ids), np.concatenate([ids[0], *(np.diff(ends) for _, ends in found)])

    def read_batch(
        self,
        batch_id: int,
        *,
        columns: Sequence[ColumnName] | None = None,
        blobs: BlobForm = "bytes",
    ) -> pa.Table:
        """Read all rows of the batches with this id, in file order; none if there is no such batch.

        Raises
        ------
        InvalidArgumentError
            When the file was not written in batch mode.
        """
        self._check_in_batches()
        number, form = integer(batch_id, "batch_id"), blob_form(blobs)
        projected = self._project(columns)
        batches = [
            self._stripes.batch(projected, stripe, ranges)
            for stripe, ranges in self._stripes.bounds.batches.rows_of(number)
        ]
        return self._with_blobs(self._table(projected, batches, columns is None), form)

    def _check_in_batches(self) -> None:
        self._check_open()
        if not self._index.footer.is_batch:
            raise InvalidArgumentError(f"{self._index.where}: not written in batch mode")

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The whole file as an Arrow C stream."""
        self._check_open()
        schema = self._as_given(self._result_schema(self._project(None), everything=True), "bytes")
        reader = pa.RecordBatchReader.from_batches(schema, self.iter_batches())
        return reader.__arrow_c_stream__(requested_schema)


def _renamed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def open_file(
    path: PathLike | Any,
    *,
    storage_options: dict[str, Any] | None = None,
    options: ReadOptions | None = None,
    blob_files: BlobFiles | None = None,
) -> FermionFile:
    """Open a file for reading; use it as a context manager.

    Parameters
    ----------
    path
        A path, an fsspec URL, or an object with the buffer protocol.
    blob_files
        Opens the blob files that references in the file name (`fermion.blobs.BlobFiles`).

    Raises
    ------
    InvalidFileError, ChecksumError, TruncatedFileError, UnsupportedVersionError
    FileNotFoundError, PermissionError
    """
    return FermionFile(
        path, options=options, storage_options=storage_options, blob_files=blob_files
    )


open = open_file  # the name that `fermion` exports


def read_table(
    path: PathLike | Any,
    *,
    columns: Sequence[ColumnName] | None = None,
    filter: FilterLike | None = None,
    storage_options: dict[str, Any] | None = None,
) -> pa.Table:
    """Read a file as a table; parameters and errors are those of `FermionFile.read`."""
    with open_file(path, storage_options=storage_options) as file:
        return file.read(columns, filter=filter)


def file_html(index: FileIndex, schema: pa.Schema | None) -> str:
    """What the end of the file says, which has been read; of a closed file without its schema."""
    footer = index.footer
    facts = {
        "rows": footer.num_rows,
        "columns": footer.num_columns,
        "stripes": footer.num_stripes,
        "bytes": footer.file_length,
        "format version": f"{footer.major}.{footer.minor}",
        "closed": True if schema is None else None,
    }
    html = html_facts(f"FermionFile {location_text(index.where)}", facts)
    if schema is None:
        return html
    rows = ((field.name, type_text(field.type), field.nullable) for field in schema)
    return html + html_table("", ("name", "type", "nullable"), rows, footer.num_columns)

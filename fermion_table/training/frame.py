"""Labels with the features that were known at each label's time."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

import fermion
from fermion.arguments import names_like, text
from fermion.display import facts_repr, names_text, short_repr
from fermion.engine import (
    FileBlocks,
    TrainingOptions,
    TrainingReader,
    strip_wrappers,
    take_table_rows,
)
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion.exports import dataclass
from fermion.forks import process
from fermion_table.argument_checks import check_texts
from fermion_table.moments import age_of, moment_of
from fermion_table.scanning.arrow_rows import ArrowRows
from fermion_table.scanning.scan import Scan
from fermion_table.table.table import Table
from fermion_table.training.as_of import is_time, newest_rows, stored_as, ticks_of
from fermion_table.training.partitions import Partitions, partition_count, row_bytes

BATCH_ROWS, BATCH_BYTES = 65_536, 64 * 1024**2
"""Of joined rows, at most; those of 1,000 features are many bytes."""


@dataclass(frozen=True)
class FeatureSource:
    """Rows with features, each valid from a moment on, until the next one of its key.

    Attributes
    ----------
    data
        A table, of which the newest snapshot is read, or a scan.
    keys
        Columns that labels have under the same names; of rows with the keys of a label one counts.
    time
        The column that tells from when on a row is valid: a timestamp, a date or an integer, of the
        type of the labels' time.
    columns
        Features, by name or by pattern (``"f_*"``), which leaves out keys and time; None: all but
        these.
    within
        How much older than the label's time a row may be: a timedelta, or text such as ``"30d"``;
        None: any age.
    """

    data: Table | Scan
    keys: Sequence[str]
    time: str
    columns: Sequence[str] | None = None
    within: timedelta | str | None = None

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if not isinstance(self.data, (Table, Scan)):
            found = type(self.data).__name__
            raise TypeError(f"data: expected a Table or a Scan, found {found}")
        object.__setattr__(self, "keys", check_texts(self.keys, "keys"))
        if not self.keys:
            raise InvalidArgumentError("keys=(): expected at least one column")
        text(self.time, "time")
        if self.columns is not None:
            object.__setattr__(self, "columns", check_texts(self.columns, "columns"))
        if self.within is not None:
            within = age_of(self.within, "within")
            if within < timedelta(0):
                raise InvalidArgumentError(f"within={self.within!r}: expected no negative time")
            object.__setattr__(self, "within", within)


@dataclass(frozen=True)
class PlannedSource:
    """What is read of a source, and how its rows are matched.

    scan: Keys, time and features.
    keys, time, features: Names of its columns.
    within: How much older than a label's time a row may be; None: any age.
    """

    scan: Scan
    keys: tuple[str, ...]
    time: str
    features: tuple[str, ...]
    within: timedelta | None

    @property
    def ticks(self) -> int | None:
        """`within` in units of the time, as `as_of.stored_as` has it."""
        return None if self.within is None else ticks_of(self.within, self._kind, self.time)

    @property
    def _kind(self) -> pa.DataType:
        return self.scan.schema.field(self.time).type


class TrainingFrame(ArrowRows):
    """Labels, each with the features of its keys at its time. Nothing is read before it is asked.

    Make one with `training_frame`. More rows than a join holds at once come in another order than
    that of the labels, the same each time.

    Attributes
    ----------
    labels, time
        What is read of the labels, and their column with the time.
    sources
        What is read of each source.
    """

    def __init__(self, labels: Scan, time: str, sources: Sequence[PlannedSource]) -> None:
        self.labels, self.time, self.sources = labels, time, tuple(sources)
        self._schema = _with_features(labels.schema, sources)

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""
        return self._schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches.

        More rows than fit into memory are shared out by key into temporary local files first.

        Raises
        ------
        VersionNotFound
            A snapshot has expired.
        """
        batches, schema, rows = self.labels.to_batches(), self.labels.schema, self.labels.count()
        by_keys: dict[tuple[str, ...], list[PlannedSource]] = {}
        for side in self.sources:
            by_keys.setdefault(side.keys, []).append(side)
        for sides in by_keys.values():  # one set of keys after the other
            batches = _joined(batches, schema, rows, self.time, sides)
            schema = _with_features(schema, sides)
        for batch in batches:
            yield batch.select(self.schema.names)

    def write_table(self, path: str | os.PathLike[str], **options: Any) -> Table:
        """Write the rows as a new table.

        Parameters
        ----------
        path, options
            As of `Table.create`.

        Raises
        ------
        TableExists
        """
        return Table.create(path, self.to_reader(), **options)

    def training(self, **options: Any) -> TrainingReader:
        """The rows for training; options are those of `Scan.training`.

        They are joined first, into a temporary local file, which ends with the reader. A state goes
        on with a frame that joins the same snapshots in the same way.
        """
        chosen = TrainingOptions(**options)
        directory = tempfile.mkdtemp(prefix="fermion-frame-")
        try:
            path = os.path.join(directory, "rows.fermion")
            with fermion.Writer(path, self.schema) as writer:
                for batch in self.to_batches():
                    writer.write(batch)
            blocks = _FrameBlocks(path, self._identity())
        except BaseException:
            _remove(directory, process())
            raise
        weakref.finalize(blocks, _remove, directory, process())
        return TrainingReader(blocks, chosen)

    def _identity(self) -> dict[str, Any]:
        scans = [self.labels, *(side.scan for side in self.sources)]
        rows = [[each.filter.shown if each.filter else None, each.limit] for each in scans]
        sides = [[side.keys, side.time, side.features, str(side.within)] for side in self.sources]
        join = json.dumps([self.time, rows, sides]).encode()
        return {
            "snapshots": [[each.snapshot.id, each.snapshot.hash[:16]] for each in scans],
            "join": hashlib.sha256(join).hexdigest()[:16],
        }

    def __repr__(self) -> str:
        facts = {
            "columns": names_text(self.schema.names, "columns"),
            "sources": str(len(self.sources)),
        }
        return facts_repr("TrainingFrame", facts)


class _FrameBlocks(FileBlocks):
    """The rows of a frame, which lie in a temporary file."""

    def __init__(self, path: str, identity: dict[str, Any]) -> None:
        super().__init__(fermion.open(path), None, None)
        self._identity = identity

    @property
    def identity(self) -> dict[str, Any]:
        """The snapshots that were joined, and how: the file is another one each time."""
        return self._identity


def _remove(directory: str, made_in: object) -> None:
    """Remove a directory, in the process that made it: a forked one has its objects, too."""
    if made_in is process():
        shutil.rmtree(directory, ignore_errors=True)


def training_frame(
    labels: Table | Scan,
    sources: Sequence[FeatureSource],
    *,
    time: str | None = None,
    as_known_at: datetime | str | None = None,
) -> TrainingFrame:
    """Join labels with features as they were at each label's time.

    For each label and source: the newest row of the label's keys whose time is not after the
    label's, and not older than ``within``, of what was committed at ``as_known_at``. So neither a
    later event nor a row that arrived late is seen. Without such a row the features are null. Of
    rows with one key and time the last one in the order of the scan counts.

    Parameters
    ----------
    labels
        A table, or a scan of the columns that the result begins with: keys, time, labels.
    sources
        Where features come from.
    time
        The column with the labels' time; None: the only timestamp or date among its columns.
    as_known_at
        A moment, as of `Table.scan`'s ``as_of``: each source is read as it was then. The sources
        have to be tables.

    Raises
    ------
    ColumnNotFoundError, InvalidArgumentError, TypeError
        An argument does not fit the others; the message names it.
    VersionNotFound
        No snapshot of that moment is left.
    """
    if not isinstance(labels, (Table, Scan)):
        raise TypeError(f"labels: expected a Table or a Scan, found {type(labels).__name__}")
    if isinstance(sources, FeatureSource) or not isinstance(sources, Sequence) or not sources:
        raise TypeError(f"sources: expected a list of FeatureSource, found {sources!r:.100}")
    if as_known_at is not None:
        as_known_at = moment_of(as_known_at, "as_known_at")
    spine = labels.scan() if isinstance(labels, Table) else labels
    moment = _time_column(spine, time)
    names = set(spine.schema.names)
    sides = []
    for place, source in enumerate(sources):
        if not isinstance(source, FeatureSource):
            raise TypeError(f"sources[{place}]: expected a FeatureSource, found {source!r:.100}")
        side = _side(spine.schema, moment, source, as_known_at, f"sources[{place}]")
        for name in side.features:
            if name in names:
                raise InvalidArgumentError(
                    f"sources[{place}]: there is another column {name!r}: choose columns=[...]"
                )
        names.update(side.features)
        sides.append(side)
    return TrainingFrame(spine, moment, sides)


def _time_column(labels: Scan, time: str | None) -> str:
    if time is not None:
        _check_time(labels.schema, text(time, "time"), "labels")
        return time
    found = [
        field.name
        for field in labels.schema
        if pat.is_timestamp(field.type) or pat.is_date(field.type)
    ]
    if len(found) != 1:
        listed = ", ".join(found) or "none"
        raise InvalidArgumentError(
            f"labels: timestamps and dates: {listed}; say which is meant: time="
        )
    return found[0]


def _check_time(schema: pa.Schema, name: str, where: str) -> pa.DataType:
    if name not in schema.names:
        raise ColumnNotFoundError(
            f"{where}: no column {name!r}: {names_text(schema.names, 'columns')}"
        )
    kind = schema.field(name).type
    if not is_time(kind):
        raise InvalidArgumentError(
            f"{where}: {name!r} is {kind}; expected a timestamp, a date or a signed integer"
        )
    return kind


def _side(
    labels: pa.Schema, moment: str, source: FeatureSource, as_known_at: Any, where: str
) -> PlannedSource:
    data = source.data
    if as_known_at is not None and isinstance(data, Scan):
        raise InvalidArgumentError(
            f"{where}: a scan has its snapshot already: give the table, or leave out as_known_at"
        )
    scan = data if isinstance(data, Scan) else data.scan(as_of=as_known_at)
    kind = _check_time(scan.schema, source.time, where)
    if kind != labels.field(moment).type:
        raise InvalidArgumentError(
            f"{where}: {source.time!r} is {kind}, but {moment!r} of the labels is "
            f"{labels.field(moment).type}"
        )
    for key in source.keys:
        for schema, whose in ((scan.schema, where), (labels, "labels")):
            if key not in schema.names:
                raise ColumnNotFoundError(
                    f"{whose}: no column {key!r}: {names_text(schema.names, 'columns')}"
                )
        if scan.schema.field(key).type != labels.field(key).type:
            raise InvalidArgumentError(
                f"{where}: {key!r} is {scan.schema.field(key).type}, but {labels.field(key).type} "
                "in the labels"
            )
        if pat.is_nested(strip_wrappers(labels.field(key).type)):
            raise InvalidArgumentError(
                f"{where}: {key!r} is {labels.field(key).type}; keys are numbers, texts, bytes, "
                "booleans, dates or times"
            )
    features = _features(scan.schema, source, where)
    within = None if source.within is None else age_of(source.within, "within")
    if within is not None:
        ticks_of(within, kind, where)  # a column without a unit of time is an error now
    names = list(dict.fromkeys([*source.keys, source.time, *features]))
    return PlannedSource(scan.select(names), tuple(source.keys), source.time, features, within)


def _features(schema: pa.Schema, source: FeatureSource, where: str) -> tuple[str, ...]:
    others = [name for name in schema.names if name not in source.keys and name != source.time]
    if source.columns is None:
        return tuple(others)
    names, features = set(schema.names), dict[str, None]()
    for pattern in source.columns:
        if pattern in names:
            found = [pattern]
        else:
            found = [others[number] for number in names_like(pattern, others)]
        if not found:
            raise ColumnNotFoundError(
                f"{where}: no column {pattern!r}: {names_text(schema.names, 'columns')}"
            )
        features.update(dict.fromkeys(found))
    return tuple(features)


def _with_features(labels: pa.Schema, sides: Sequence[PlannedSource]) -> pa.Schema:
    fields = list(labels)
    for side in sides:
        schema = side.scan.schema  # made anew each time it is asked for
        fields += [schema.field(name).with_nullable(True) for name in side.features]
    return pa.schema(fields)


def _joined(
    labels: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    rows: int,
    time: str,
    sides: Sequence[PlannedSource],
) -> Iterator[pa.RecordBatch]:
    """Labels with the features of sources that have the same keys."""
    keys = sides[0].keys
    stored = [(schema, rows), *((side.scan.schema, side.scan.plan().rows) for side in sides)]
    count = partition_count(stored)
    with tempfile.TemporaryDirectory(prefix="fermion-join-") as directory:
        streams = [labels, *(side.scan.to_batches() for side in sides)]
        parts = []
        for number, (batches, (columns, _)) in enumerate(zip(streams, stored, strict=True)):
            part = Partitions(directory, str(number), count, columns)
            part.write(batches, keys)
            parts.append(part)
        for number in range(count):
            yield from _join([part.read(number) for part in parts], time, sides)


def _join(
    rows_of: Sequence[pa.Table], time: str, sides: Sequence[PlannedSource]
) -> Iterator[pa.RecordBatch]:
    """The same of rows that fit into memory: labels, and those of each source."""
    labels, *sources = rows_of
    schema, times = _with_features(labels.schema, sides), _times(labels, time)
    found = [
        newest_rows(
            [labels.column(key) for key in side.keys],
            times,
            [rows.column(key) for key in side.keys],
            _times(rows, side.time),
            side.ticks,
        )
        for side, rows in zip(sides, sources, strict=True)
    ]
    features = []
    for side, rows, numbers in zip(sides, sources, found, strict=True):
        rows = rows.select(side.features)
        if (numbers < 0).any():  # they count from the end: what a label without a row takes
            nulls = [pa.nulls(1, kind) for kind in rows.schema.types]
            rows = pa.concat_tables([rows, pa.table(nulls, schema=rows.schema)])
        features.append(rows)
    size = min(max(BATCH_BYTES // max(row_bytes(schema), 1), 1), BATCH_ROWS)
    for start in range(0, labels.num_rows, size):
        columns = labels.slice(start, size).columns
        for rows, numbers in zip(features, found, strict=True):
            wanted = numbers[start : start + size] % rows.num_rows
            columns += take_table_rows(rows, wanted).columns
        table = pa.Table.from_arrays(columns, schema=schema)
        yield from table.combine_chunks().to_batches()


def _times(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """A column of times as 64-bit values."""
    column = rows.column(name)
    return column.cast(stored_as(column.type))

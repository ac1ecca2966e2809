"""Packed manifests: many entries as a Fermion file, one column for each thing that they say.

Planning reads only the columns that a filter names. The columns are

=====================================  =======  ==================================================
column                                 type     meaning
=====================================  =======  ==================================================
path, external_path, source, file_id   string   as in an entry; null: the default
size, rows, tail_length, schema_id,    int64    as in an entry; null where the entry has null
bucket, total_buckets, level,
retractions, keys_repeated,
delete_rows, sequence_offset,
sequence_start, row_offset,
row_id_base, added_snapshot,
created_ms
batch.min, batch.max, batch.count,     int64    of ``batch``; null: there are no batches
batch.sorted (0 or 1)
partition, columns, column_files,      string   the key's JSON; null: the default
indexes, blob_files, min_key, max_key,
deletion_vector, unknown
stats.<id>.min, .max, .null_count,     int64    of ``stats``; flags null: no statistics of the
.flags                                          field in this file
=====================================  =======  ==================================================

Columns of which every value is null may be left out; so may ``retractions`` and ``keys_repeated``
where every value is 0.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

import fermion
from fermion import arrow_compute as pc
from fermion.engine import numbers_of
from fermion.errors import FermionError
from fermion.forks import cached_property
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.file_columns import (
    BATCH_BOUNDS,
    NUMBERS,
    ORDERING,
    PATHS,
    PLANNED,
    PLANNED_WITH_FILTER,
    FieldBounds,
    Numbers,
    Partition,
    path_table,
)
from fermion_table.metadata.manifest import (
    BatchRange,
    BlobFile,
    ColumnFile,
    DeletionVector,
    Entry,
    FieldStatistics,
    IndexFile,
    Layout,
    ManifestReference,
    layout_of,
)
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.json_codec import decoder

STATISTICS = ("min", "max", "null_count", "flags")
_TEXTS = ("path", "external_path", "source", "file_id")
_INTEGERS = (
    "size", "rows", "tail_length", "schema_id", "bucket", "total_buckets", "level", "retractions",
    "keys_repeated", "delete_rows", "sequence_offset", "sequence_start", "row_offset",
    "row_id_base", "added_snapshot", "created_ms",
)  # fmt: skip
_OF_TREES = ("retractions", "keys_repeated")
_INHERITED = ("sequence_start", "row_offset", "row_id_base", "added_snapshot")
_BATCH = ("min", "max", "count", "sorted")
_JSON: dict[str, Any] = {
    "partition": tuple[Any, ...],
    "columns": tuple[tuple[int, int], ...],
    "column_files": tuple[ColumnFile, ...],
    "indexes": tuple[IndexFile, ...],
    "blob_files": tuple[BlobFile, ...],
    "min_key": Any,
    "max_key": Any,
    "deletion_vector": DeletionVector,
    "unknown": dict[str, Any],
}
_DESCRIBING = (*_TEXTS, *_INTEGERS, *(f"batch.{name}" for name in _BATCH), *_JSON)
"""All columns but statistics."""
MANY_FILES = 4096
"""In manifests of more files a column costs more than another look at the manifest."""
_INT64 = range(-(2**63), 2**63)
_PLAIN = Entry(size=0, rows=0)


def can_pack(entries: Iterable[Entry]) -> bool:
    """Whether all statistics are numbers, as this version writes them."""
    return all(
        each is None or (type(each) is int and each in _INT64)
        for entry in entries
        for found in entry.stats.values()
        for each in (found.min, found.max)
    )


def packed_table(entries: Sequence[Entry]) -> pa.Table:
    """Entries as columns, in their order."""
    columns: dict[str, pa.Array] = {
        name: pa.array([getattr(entry, name) or None for entry in entries], pa.string())
        for name in _TEXTS
    }
    for name in _INTEGERS:
        values = [getattr(entry, name) for entry in entries]
        if any(values) or name not in _OF_TREES:
            columns[name] = pa.array(values, pa.int64())
    for name in _BATCH:
        values = [
            None if each.batch is None else int(getattr(each.batch, name)) for each in entries
        ]
        columns[f"batch.{name}"] = pa.array(values, pa.int64())
    for name in _JSON:
        nothing = getattr(_PLAIN, name)
        texts = [_json(getattr(entry, name), nothing) for entry in entries]
        columns[name] = pa.array(texts, pa.string())
    for field_id in sorted({each for entry in entries for each in entry.stats}):
        found = [entry.stats.get(field_id) for entry in entries]
        for name in STATISTICS:
            values = [None if each is None else getattr(each, name) for each in found]
            columns[f"stats.{field_id}.{name}"] = pa.array(values, pa.int64())
    return pa.table({name: each for name, each in columns.items() if each.null_count < len(each)})


def with_inherited(table: pa.Table, reference: ManifestReference) -> pa.Table:
    """The columns of a manifest's entries with what they inherit filled in."""
    nothing = pa.nulls(table.num_rows, pa.int64())
    have = {
        name: table.column(name) if name in table.column_names else nothing for name in _INHERITED
    }
    fresh = pc.is_null(have["added_snapshot"])
    offset = pc.add(pc.fill_null(have["row_offset"], 0), reference.row_id_start)
    start = pc.if_else(fresh, reference.sequence_start, None)
    first = pc.if_else(fresh, offset, None)
    filled = {
        "sequence_start": pc.coalesce(have["sequence_start"], start),
        "row_id_base": pc.coalesce(have["row_id_base"], first),
        "added_snapshot": pc.fill_null(have["added_snapshot"], reference.added_snapshot[1]),
    }
    kept = [name for name in table.column_names if name not in filled]
    columns = [table.column(name) for name in kept] + list(filled.values())
    return pa.table(dict(zip([*kept, *filled], columns, strict=True)))


def write_packed(table: pa.Table) -> bytes:
    """A table of such columns as the bytes of a Fermion file, no fewer than it has rows.

    Readers refuse a manifest of more entries than bytes: such a one has its texts as they are.
    """
    data = _file_of(table, {})
    if len(data) >= table.num_rows:
        return data
    return _file_of(table, {name: "plain" for name in _TEXTS if name in table.column_names})


def _file_of(table: pa.Table, encodings: dict[str, str]) -> bytes:
    target = io.BytesIO()
    rows = max(table.num_rows, 1)
    options = fermion.WriteOptions(threads=1, stripe_rows=rows, encodings=encodings)
    fermion.write_table(table, target, options=options)
    return target.getvalue()


def decode_packed(data: bytes, path: str) -> tuple[Entry, ...]:
    """The entries of a packed manifest's file.

    Raises CorruptMetadata: Not such a file; `path` names it.
    """
    try:
        with fermion.open(memoryview(data)) as file:
            return tuple(_entries(file.read(), file.num_rows))
    except (FermionError, msgspec.MsgspecError, TypeError, ValueError) as error:
        raise CorruptMetadata(path, "a packed manifest", str(error)) from error


def check_packed(data: bytes, path: str, count: int) -> None:
    """Read every column of a packed manifest's file as planning does: no entry is made.

    Raises CorruptMetadata: Not such a file of so many entries.
    """
    try:
        with fermion.open(memoryview(data), options=fermion.ReadOptions(threads=1)) as file:
            if file.num_rows != count:
                raise CorruptMetadata(path, f"{count} entries", f"{file.num_rows}")
            table = file.read()
            for name, target in _JSON.items():
                if name in table.column_names:
                    for text in table.column(name).unique().drop_null().to_pylist():
                        _parsed(text, target)
    except (FermionError, msgspec.MsgspecError, TypeError, ValueError) as error:
        raise CorruptMetadata(path, "a packed manifest", str(error)) from error


class PackedFiles:
    """The files of a packed manifest as `FileColumns`; reads columns as they are asked for.

    path, hash, count: As in the manifest's reference; columns are cached by the hash.
    open_file: Opens the manifest's Fermion file.
    """

    def __init__(
        self, path: str, hash: str, count: int, open_file: Callable[[], fermion.FermionFile]
    ) -> None:
        self._path = path
        self._hash = hash
        self._count = count
        self._open = open_file

    def __len__(self) -> int:
        return self._count

    def _has(self, name: str) -> bool:
        """Whether the manifest has a column, asked without looking at all that it has."""
        key = self._hash, name, "is there"
        found: bool | None = shared_cache.get(key)
        if found is None:
            found = bool(self._file.index.names.find(name))
            shared_cache.put(key, found, 100)
        return found

    @cached_property
    def _names(self) -> frozenset[str]:
        key = self._hash, "names"
        names: frozenset[str] | None = shared_cache.get(key)
        if names is None:
            names = frozenset(self._file.schema.names)
            shared_cache.put(key, names, 100 * len(names))
        return names

    @cached_property
    def _file(self) -> fermion.FermionFile:
        try:
            file = self._open()
        except FermionError as error:
            raise CorruptMetadata(self._path, "a Fermion file", str(error)) from error
        if file.num_rows != self._count:
            raise CorruptMetadata(self._path, f"{self._count} entries", f"{file.num_rows}")
        return file

    def _read(self, names: Iterable[str], ordinals: np.ndarray | None = None) -> pa.Table:
        """Columns that are there, whole or at some ordinals."""
        wanted = [(name,) for name in names if self._has(name)]
        try:
            if ordinals is not None and len(ordinals) < self._count:
                return self._file.take(ordinals, columns=wanted)
            return self._file.read(wanted)
        except FermionError as error:
            raise CorruptMetadata(self._path, "a valid Fermion file", str(error)) from error

    def read_numbers(self, name: str) -> Numbers:
        """As `numbers`, but nothing else is read, and nothing is kept."""
        return _numbers(self._read((name,)), name, self._count)

    def _columns(self, names: Sequence[str], texts: Sequence[str] = ()) -> list[Numbers]:
        """Columns of numbers; those not known yet are read together, and with them some texts."""
        found = {name: shared_cache.get((self._hash, name)) for name in names}
        missing = [name for name, numbers in found.items() if numbers is None]
        texts = [name for name in texts if shared_cache.get(self._dictionary_key(name)) is None]
        if missing or texts:
            table = self._read([*missing, *texts])
            for name in missing:
                found[name] = _numbers(table, name, self._count)
                shared_cache.put((self._hash, name), found[name], 9 * self._count)
            for name in texts:
                self._keep_dictionary(name, table)
        return [found[name] for name in names]

    def prepare(self, field_ids: Collection[int]) -> None:
        """See `FileColumns`."""
        # Of many files a filter often leaves none, about which no more is asked.
        names = list(PLANNED if self._count <= MANY_FILES else PLANNED_WITH_FILTER)
        for field_id in field_ids:
            if self._has(f"stats.{field_id}.flags"):
                names += [f"stats.{field_id}.{name}" for name in STATISTICS]
        self._columns(names, ["columns"] if field_ids else [])

    def numbers(self, name: str) -> Numbers:
        """See `FileColumns`."""
        assert name in NUMBERS
        found: Numbers | None = shared_cache.get((self._hash, name))
        if found is None:
            groups = (PLANNED, ORDERING, BATCH_BOUNDS, (name,))
            together = next(each for each in groups if name in each)
            found = self._columns(together)[together.index(name)]
        return found

    def partitions(self) -> tuple[np.ndarray, list[Partition]]:
        """See `FileColumns`."""
        codes, texts = self._dictionary("partition")
        values = [() if text is None else _parsed(text, _JSON["partition"]) for text in texts]
        return codes, values

    def has_column(self, field_id: int) -> np.ndarray:
        """See `FileColumns`."""
        codes, texts = self._dictionary("columns")
        has = [
            text is None
            or any(low <= field_id <= high for low, high in _parsed(text, _JSON["columns"]))
            for text in texts
        ]
        return np.array(has, bool)[codes]

    def layouts(self) -> tuple[np.ndarray, list[Layout]]:
        """See `FileColumns`."""
        if not self._has("column_files"):
            return np.zeros(self._count, np.int64), [()]
        key = self._hash, "layouts"
        found: tuple[np.ndarray, list[Layout]] | None = shared_cache.get(key)
        if found is None:
            codes, texts = self._dictionary("column_files")
            numbers: dict[Layout, int] = {}
            each = [
                numbers.setdefault(
                    () if text is None else layout_of(_parsed(text, _JSON["column_files"])),
                    len(numbers),
                )
                for text in texts
            ]
            found = np.array(each, np.int64)[codes], list(numbers)
            shared_cache.put(key, found, 8 * self._count + 1000 * len(numbers))
        return found

    def _dictionary_key(self, name: str) -> tuple[str, str, str]:
        return self._hash, name, "dictionary"

    def _dictionary(self, name: str) -> tuple[np.ndarray, list[str | None]]:
        """A code for each file, and the text of each code."""
        found: tuple[np.ndarray, list[str | None]] | None = shared_cache.get(
            self._dictionary_key(name)
        )
        return found or self._keep_dictionary(name, self._read([name]))

    def _keep_dictionary(self, name: str, table: pa.Table) -> tuple[np.ndarray, list[str | None]]:
        """The same of a column that was read just now, if it is there."""
        codes: np.ndarray = np.zeros(self._count, np.int64)
        texts: list[str | None] = [None]
        if name in table.column_names:
            column = table.column(name).combine_chunks()
            encoded = pc.dictionary_encode(column, null_encoding="encode")
            codes = numbers_of(encoded.indices).astype(np.int64)
            texts = encoded.dictionary.to_pylist()
        size = 8 * self._count + 100 * len(texts)
        shared_cache.put(self._dictionary_key(name), (codes, texts), size)
        return codes, texts

    def bounds(self, field_id: int) -> FieldBounds | None:
        """See `FileColumns`."""
        if not self._has(f"stats.{field_id}.flags"):
            return None
        return FieldBounds(*self._columns([f"stats.{field_id}.{name}" for name in STATISTICS]))

    def entries(self, ordinals: np.ndarray, *, statistics: bool = True) -> list[Entry]:
        """See `FileColumns`."""
        if not len(ordinals):
            return []
        if not statistics:
            return _entries(self._described(ordinals), len(ordinals))
        names = [*_DESCRIBING, *sorted(name for name in self._names if name.startswith("stats."))]
        return _entries(self._read(names, ordinals), len(ordinals))

    def _described(self, ordinals: np.ndarray) -> pa.Table:
        """The columns of some entries without statistics.

        The first time only those entries are decoded. Whoever asks again is likely to go on
        asking, for others: then all are, and kept.
        """
        key = self._hash, "entries"
        known: pa.Table | None = shared_cache.get(key)
        if known is None:
            asked = self._hash, "entries were asked for"
            if shared_cache.get(asked) is None:
                shared_cache.put(asked, True, 100)
                return self._read(_DESCRIBING, ordinals)
            known = self._read(_DESCRIBING).combine_chunks()
            shared_cache.put(key, known, known.nbytes)
        return known.take(ordinals) if len(ordinals) < self._count else known

    def table(self, ordinals: np.ndarray) -> pa.Table:
        """All columns of some files, those that this version does not know included."""
        return self._read(sorted(self._names), ordinals)

    def find(self, files: Collection[str]) -> dict[str, int]:
        """See `FileColumns`."""
        table = self._read(["path", "external_path"])
        names = pa.nulls(self._count, pa.string())
        for name in ("external_path", "path"):
            if name in table.column_names:
                names = pc.coalesce(names, table.column(name))
        inside = pc.is_in(names, value_set=pa.array(list(files), pa.string()))
        (ordinals,) = np.nonzero(inside.to_numpy(zero_copy_only=False))
        return {names[ordinal].as_py(): ordinal for ordinal in ordinals.tolist()}

    def paths(self, ordinals: np.ndarray) -> pa.Table:
        """See `FileColumns`."""
        beside = ("deletion_vector", "column_files", "indexes", "blob_files")
        table = self._read([*PATHS.names, *beside], ordinals)
        found = [PATHS.empty_table()]
        if "path" in table.column_names:
            own = table.select(PATHS.names).cast(PATHS)
            found.append(own.filter(pc.is_valid(own["path"])) if own["path"].null_count else own)
        for name in (each for each in beside if each in table.column_names):
            texts = table.column(name).drop_null().to_pylist()
            parsed = [_parsed(text, _JSON[name]) for text in texts]
            files = parsed if name == "deletion_vector" else itertools.chain.from_iterable(parsed)
            found.append(path_table((each.path, each.size) for each in files if each.path))
        return pa.concat_tables(found)


def _entries(table: pa.Table, count: int) -> list[Entry]:
    have = {name: table.column(name).to_pylist() for name in table.column_names}
    fields: dict[str, list[Any]] = {}
    for name in (*_TEXTS, *_INTEGERS):
        if name in have:
            fields[name] = have[name]
    for name, target in _JSON.items():
        if name in have:
            parsed: dict[str | None, Any] = {None: None}
            fields[name] = [
                parsed[text] if text in parsed else parsed.setdefault(text, _parsed(text, target))
                for text in have[name]
            ]
    if "batch.min" in have:
        ranges = zip(*(have[f"batch.{name}"] for name in _BATCH), strict=True)
        fields["batch"] = [
            None if low is None else BatchRange(low, high, number, bool(is_sorted))
            for low, high, number, is_sorted in ranges
        ]
    stats: list[dict[int, FieldStatistics]] = [{} for _ in range(count)]
    for name in have:
        if name.startswith("stats.") and name.endswith(".flags"):
            prefix = name.removesuffix("flags")
            nothing = [None] * count
            columns = [have.get(prefix + each, nothing) for each in STATISTICS]
            field_id = int(prefix[6:-1])
            for place, values in enumerate(zip(*columns, strict=True)):
                if values[3] is not None:
                    stats[place][field_id] = FieldStatistics(*values)
    names = list(fields)
    return [
        Entry(
            stats=found,
            **{name: each for name, each in zip(names, row, strict=True) if each is not None},
        )
        for found, row in zip(stats, zip(*fields.values(), strict=True), strict=True)
    ]


def _numbers(table: pa.Table, name: str, count: int) -> Numbers:
    if name not in table.column_names:
        return Numbers(np.zeros(count, np.int64), np.zeros(count, bool))
    column = table.column(name).combine_chunks()
    if column.type != pa.int64():
        column = column.cast(pa.int64())
    if not column.null_count:
        return Numbers(numbers_of(column), np.ones(count, bool))
    return Numbers(numbers_of(pc.fill_null(column, 0)), numbers_of(pc.is_valid(column)))


def _json(value: Any, nothing: Any) -> str | None:
    return None if value == nothing else msgspec.json.encode(value).decode()


def _parsed(text: str, target: Any) -> Any:
    return decoder(target).decode(text)

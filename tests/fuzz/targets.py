"""What a fuzzer feeds: each target takes any bytes and may raise errors of ours, no others."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

import fermion
from fermion import variant
from fermion.columns.variants import STORAGE
from fermion.errors import FermionError
from fermion.io.checksum import crc32c
from fermion.predicate import Expression, parse_filter
from fermion.reading import many_pages, stripe
from fermion_table.checks.verify import verify
from fermion_table.metadata import history, manifest_store
from fermion_table.metadata.deletion_vector import unpack
from fermion_table.metadata.manifest import DeletionVector, decode_manifest, encode_manifest
from fermion_table.metadata.references import load_branch, load_tag
from fermion_table.metadata.snapshot import CHECKSUM_END, CHECKSUM_KEY, decode_snapshot
from fermion_table.schema.schema import decode_schema, field_of_message, parse_type_text
from fermion_table.storage import json_codec
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.paths import snapshot_path, tag_path
from tests.kit.files.file_anatomy import repair
from tests.kit.stores import MemoryStore

OPTIONS = fermion.ReadOptions(threads=1)
EVERYTHING = OPTIONS.with_overrides({"use_statistics": False, "keep_dictionaries": True})
BATCH_ROWS, TAKEN_MAX, FILTERED_MAX = 300, 1_000, 3
ROWS_MAX = 1 << 20
"""Rows of a file that some are read of."""
PARTS = (None, pa.string(), pa.int64(), pa.timestamp("us"))
"""What parts of Variant values are asked for as."""
DEEP = b"the checksums are put right"
"""A file that ends with this is read without it, after its checksums were put right."""


def file(data: bytes) -> None:
    """A Fermion file: its rows, some of them, rows that filters select, and what `verify` says."""
    if data.endswith(DEEP):
        damaged = bytearray(data[: -len(DEEP)])
        with contextlib.suppress(Exception):  # the test's own reader, which trusts what it reads
            repair(damaged)
        data = bytes(damaged)
    options = (OPTIONS, EVERYTHING)[crc32c(data) % 2]
    with contextlib.suppress(FermionError), fermion.open(data, options=options) as opened:
        for read in _reads(opened):
            with contextlib.suppress(FermionError):
                read()


def _reads(opened: fermion.FermionFile) -> Iterator[Callable[[], object]]:
    """Ways to read a file: errors of one are not those of the others."""
    yield opened.verify
    yield lambda: [batch.validate() for batch in opened.iter_batches(batch_size=BATCH_ROWS)]
    rows = opened.num_rows
    if not 0 < rows <= ROWS_MAX:
        return
    yield lambda: opened.read().validate()
    yield lambda: opened.read(blobs="references").validate()
    yield lambda: opened.read(rows=(rows // 3, rows // 2)).validate()
    yield lambda: _as_large(lambda: opened.read(rows=(rows // 3, rows // 2)).validate())
    yield lambda: opened.take([0, rows // 2, rows - 1]).validate()
    yield lambda: opened.take(np.arange(0, rows, 3 + rows // TAKEN_MAX)).validate()
    for field in list(opened.schema)[:FILTERED_MAX]:
        for condition in _conditions(field):
            yield lambda condition=condition: opened.read(filter=condition).validate()
            yield lambda condition=condition: _as_large(
                lambda: opened.read(filter=condition).validate()
            )
    for ordinal, keys in opened.index.map_keys.items():
        for key in keys.keys[:FILTERED_MAX]:
            path = opened.schema.names[ordinal], str(key)
            yield lambda path=path: opened.read([path]).validate()
            yield lambda path=path: opened.read(filter=fermion.col(*path).is_null()).validate()


def _as_large(read: Callable[[], object]) -> None:
    """Read a small file by the ways of large ones."""
    with (
        mock.patch.object(stripe, "TOGETHER_COLUMNS_MAX", 0),
        mock.patch.object(many_pages, "RUN_ROWS_MIN", 1),
    ):
        read()


def _conditions(field: pa.Field) -> Iterator[Expression]:
    """Filters that a column may have."""
    kind, column = field.type, fermion.col((field.name,))
    if pat.is_dictionary(kind):
        kind = kind.value_type
    if pat.is_integer(kind) or pat.is_floating(kind) or pat.is_decimal(kind):
        yield (column > 4) & (column <= 10**6)
        yield column.isin([7, 100])
    elif pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind):
        yield column > "RAIL"
        yield column.starts_with("value")
    else:
        yield column.is_null()


def manifest(data: bytes) -> None:
    """A manifest: decoded, and written again."""
    with contextlib.suppress(FermionError):
        encode_manifest(decode_manifest(data, "manifest/x.json").entries)


def schema(data: bytes) -> None:
    """A table's schema: decoded, and its types in Arrow."""
    with contextlib.suppress(FermionError):
        decode_schema(data, "schema/x.json").to_arrow()


def snapshot(data: bytes) -> None:
    """A snapshot up to its checksum, which is put right: decoded, found, listed and verified."""
    stored = data + CHECKSUM_KEY + json_codec.content_hash(data).encode() + CHECKSUM_END
    with contextlib.suppress(FermionError):
        number = decode_snapshot(stored, snapshot_path(0)).id
        store = MemoryStore()
        store.objects[snapshot_path(number)] = stored
        shared_cache.clear()
        found = history.load_snapshot(store, number)
        verify(store)
        manifest_store.live_entries(store, found)
        manifest_store.removed_entries(store, found)


def reference(data: bytes) -> None:
    """A tag and a branch."""
    store = MemoryStore()
    store.objects[tag_path("x")] = data
    store.objects["branch/x/branch.json"] = data
    for load in (load_tag, load_branch):
        with contextlib.suppress(FermionError):
            load(store, "x")


def deletion_vector(data: bytes) -> None:
    """A deletion vector of a file of 100 rows, whose checksum is right."""
    stored = crc32c(data).to_bytes(4, "little") + data
    vector = DeletionVector(path="deletion/x.dv", size=len(stored), rows=2)
    with contextlib.suppress(FermionError):
        unpack(stored, vector, 100)


def type_text(data: bytes) -> None:
    """The text of a type, and the message of one."""
    text = data.decode("utf-8", "replace")
    for parse in (parse_type_text, field_of_message):
        with contextlib.suppress(FermionError, ValueError):  # it names no type
            parse(text)


def filter_text(data: bytes) -> None:
    """A filter in SQL."""
    with contextlib.suppress(FermionError):
        parse_filter(data.decode("utf-8", "replace"))


def json_events(data: bytes) -> None:
    """JSON lines, or metadata and value of a Variant: parts, as JSON, in columns of paths."""
    with contextlib.suppress(FermionError, pa.ArrowInvalid):  # no UTF-8
        lines = pa.array(data.split(b"\n"), pa.binary()).cast(pa.string())
        _use_variants(variant.from_json(lines))
    metadata, _, value = data.partition(b"\n")
    storage = pa.array([{"metadata": metadata, "value": value}] * 2, STORAGE)
    _use_variants(pa.ExtensionArray.from_storage(variant.VariantType(), storage))


def _use_variants(values: pa.Array) -> None:
    part = fermion.col("e")["a"].cast(pa.string())
    sink = io.BytesIO()

    def shredded() -> None:
        table = pa.table({"e": values})
        fermion.write_table(table, sink, shred={"e": fermion.Shred()}, stripe_rows=2)
        assert fermion.read_table(sink.getvalue()).num_rows == len(values)
        fermion.read_table(sink.getvalue(), columns=[part])

    uses: list[Callable[[], object]] = [lambda: variant.to_json(values), shredded]
    for path in ("$", "$.a", "$.a.b", "$[0]"):
        uses += [lambda path=path, type=type: variant.get(values, path, type) for type in PARTS]
    for use in uses:
        with contextlib.suppress(FermionError):
            use()


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        file, manifest, schema, snapshot, reference, deletion_vector, type_text, filter_text,
        json_events,
    )
}  # fmt: skip

"""A Paimon table that shows a table: an append table, whose columns are found by field id.

Metadata is written here with pypaimon's schemas of Avro and its rows: so a commit removes single
files, and says that a compaction replaces files. All files lie in one bucket without partitions.
"""

from __future__ import annotations

import io
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.types as pat
from pypaimon.manifest.schema.manifest_entry import MANIFEST_ENTRY_SCHEMA
from pypaimon.manifest.schema.manifest_file_meta import MANIFEST_FILE_META_SCHEMA
from pypaimon.schema.data_types import AtomicType, DataField
from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.errors import CorruptMetadata
from fermion_table.mirrors.copies import Copy
from fermion_table.mirrors.target import (
    BRANCH,
    TABLE,
    MirrorTarget,
    Source,
    Step,
    TargetState,
    foreign_commit,
    position_of,
    properties_of,
)
from fermion_table.mirrors.types import copied_field, plain_leaf
from fermion_table.moments import now_ms
from fermion_table.schema.schema import Field, PartitionField, TableSchema
from fermion_table.storage.store import CreateResult

MANIFESTS_MAX = 100
"""More manifests than this are merged into one."""
RESERVED_NAMES = ("_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "_ROW_ID", "rowkind")
RESERVED_BEGINNING = "_KEY_"
_ADD, _DELETE = 0, 1
_BUCKETS = -1  # an append table without buckets: its files are in bucket 0
_VERSION = 3  # of schemas and snapshots
_ENTRY_VERSION = 2
_KINDS = {
    "append": "APPEND",
    "delete": "OVERWRITE",
    "overwrite": "OVERWRITE",
    "replace": "COMPACT",
    "none": "APPEND",
}
_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BYTES",
    pa.date32(): "DATE",
    pa.time32("ms"): "TIME(3)",
    pa.timestamp("us"): "TIMESTAMP(6)",
    pa.timestamp("us", "UTC"): "TIMESTAMP(6) WITH LOCAL TIME ZONE",
}
Record = Mapping[str, Any]


def paimon_leaf(dtype: pa.DataType) -> pa.DataType | None:
    """The type that Paimon has for one of Arrow's."""
    if pat.is_time(dtype):
        return pa.time32("ms") if pat.is_time32(dtype) else None
    plain = plain_leaf(dtype)
    return pa.binary() if plain is not None and pat.is_fixed_size_binary(plain) else plain


@dataclass(frozen=True, slots=True)
class PaimonState:
    """A Paimon table and the files that it shows.

    schema: The newest; None: there is no table yet.
    snapshot: The newest; None: nothing was published yet.
    manifests: What manifest lists say of the manifests of that snapshot, in their order.
    live: Entries of its files, by name.
    gone: Names of files that some manifest removes.
    """

    schema: Record | None = None
    snapshot: Record | None = None
    manifests: Sequence[Record] = ()
    live: Mapping[str, Record] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()


class PaimonTarget(MirrorTarget):
    """A Paimon table in a directory."""

    kind = "paimon"
    table = "a Paimon table"
    by_name = False
    leaf = staticmethod(paimon_leaf)
    data_folder = "bucket-0"

    def check(self, schema: TableSchema) -> None:
        """Refuse types that Paimon does not have, and names that it has for itself."""
        super().check(schema)
        for name in schema.by_name:
            if name in RESERVED_NAMES or name.startswith(RESERVED_BEGINNING):
                raise InvalidArgumentError(
                    f"{self.where}: column {name!r}: Paimon has this name for itself"
                )

    def form(self, field: Field) -> tuple[Any, ...]:
        """Names within a column count, too."""
        return super().form(field), str(copied_field(field, paimon_leaf, ids=False).type)

    def partition_by(self, schema: TableSchema) -> tuple[PartitionField, ...]:
        """None: bounds of columns tell which files a filter needs."""
        return ()

    def load(self, source: Source) -> TargetState:
        """Where the mirror stands, by its newest snapshot."""
        schema, snapshot = self._newest("schema"), self._newest("snapshot")
        if schema is None:
            return TargetState(detail=PaimonState())
        options = schema["options"]
        if (options.get(TABLE), options.get(BRANCH)) != (source.table_uuid, source.branch):
            raise self.no_mirror_of(source)
        if snapshot is None:
            return TargetState(detail=PaimonState(schema))
        position = position_of(snapshot.get("properties") or {})
        if position is None:
            what = f"{snapshot['commitKind']} by {snapshot['commitUser']}"
            raise foreign_commit(self.where, f"snapshot {snapshot['id']} ({what})")
        manifests = [
            manifest
            for name in (snapshot["baseManifestList"], snapshot["deltaManifestList"])
            for manifest in self._read(name)
        ]
        live: dict[str, Record] = {}
        gone: set[str] = set()
        for manifest in manifests:
            for entry in self._read(manifest["_FILE_NAME"]):
                name = entry["_FILE"]["_FILE_NAME"]
                if entry["_KIND"] == _ADD:
                    live[name] = entry
                else:
                    live.pop(name, None)
                    gone.add(name)
        state = PaimonState(schema, snapshot, manifests, live, frozenset(gone))
        return TargetState(position, frozenset(live), state)

    def _newest(self, kind: str) -> Record | None:
        """The schema or snapshot with the greatest number."""
        pattern = re.compile(rf"{kind}/{kind}-(\d+)")
        numbers = [
            int(match[1])
            for item in self.store.list(kind)
            if (match := pattern.fullmatch(item.path))
        ]
        if not numbers:
            return None
        path = f"{kind}/{kind}-{max(numbers)}"
        try:
            found: Record = json.loads(self.store.read(path))
        except ValueError as error:
            raise CorruptMetadata(path, f"a {kind} of Paimon", str(error)[:200]) from error
        return found

    def _read(self, name: str) -> list[Any]:
        """The records of a manifest, or of a list of them."""
        return list(fastavro.reader(io.BytesIO(self.store.read(f"manifest/{name}"))))

    def _write(self, name: str, schema: Any, records: Iterable[Record]) -> int:
        """Write a manifest or a list of them; its size in bytes."""
        data = io.BytesIO()
        fastavro.writer(data, schema, records, codec="deflate")
        self.store.write(f"manifest/{name}", data.getvalue())
        return len(data.getvalue())

    def commit(self, state: TargetState, step: Step) -> TargetState | None:
        """Publish one snapshot of Paimon."""
        known: PaimonState = state.detail
        schema = self._schema(known.schema, step)
        if schema is None:
            return None
        added = {copy.name: _entry(copy, schema) for copy in step.added}
        removed = [{**known.live[name], "_KIND": _DELETE} for name in step.removed]
        base, gone = known.manifests, known.gone
        if len(base) > MANIFESTS_MAX or not gone.isdisjoint(added):
            # Readers drop the files that any manifest removes: one that comes back needs others.
            base, gone = self._manifests(list(known.live.values()), schema), frozenset()
        delta = self._manifests([*removed, *added.values()], schema)
        live = {name: entry for name, entry in known.live.items() if name not in step.removed}
        live |= added
        snapshot = {
            **self._snapshot(known.snapshot, step, (base, delta)),
            "schemaId": schema["id"],
            "totalRecordCount": _rows(live),
            "deltaRecordCount": _rows(live) - _rows(known.live),
        }
        number = snapshot["id"]
        created = self.store.create_if_absent(
            f"snapshot/snapshot-{number}", json.dumps(snapshot).encode()
        )
        if created is not CreateResult.CREATED:
            return None
        for hint in ("LATEST", *(["EARLIEST"] if number == 1 else [])):
            self.store.overwrite_hint(f"snapshot/{hint}", str(number).encode())
        gone = gone.union(step.removed)
        after = PaimonState(schema, snapshot, [*base, *delta], live, gone)
        return TargetState(step.position, frozenset(live), after)

    def _schema(self, known: Record | None, step: Step) -> Record | None:
        """The schema of a step, made if it is new; None: another writer made one meanwhile."""
        fields = [
            _json_field(each, copied_field(each, paimon_leaf, ids=False).type)
            for each in step.schema.fields
        ]
        if known is not None and known["fields"] == fields:
            return known
        old: Record = {"id": -1, "highestFieldId": 0, "options": {}} if known is None else known
        source = step.position.source
        made = {
            "version": _VERSION,
            "id": old["id"] + 1,
            "fields": fields,
            "highestFieldId": max(old["highestFieldId"], *_ids(step.schema.fields)),
            "partitionKeys": [],
            "primaryKeys": [],
            "options": {
                "bucket": str(_BUCKETS),
                "file.format": "parquet",
                "write-only": "true",
                TABLE: source.table_uuid,
                BRANCH: source.branch,
                **old["options"],
            },
            "timeMillis": now_ms(),
        }
        path = f"schema/schema-{made['id']}"
        created = self.store.create_if_absent(path, json.dumps(made).encode())
        return made if created is CreateResult.CREATED else None

    def _manifests(self, entries: Sequence[Record], schema: Record) -> list[Record]:
        """A manifest with some entries, as lists name it; none without entries."""
        if not entries:
            return []
        name = f"manifest-{uuid.uuid4()}-0"
        size = self._write(name, MANIFEST_ENTRY_SCHEMA, entries)
        removed = sum(entry["_KIND"] for entry in entries)
        said = {
            "_VERSION": _ENTRY_VERSION,
            "_FILE_NAME": name,
            "_FILE_SIZE": size,
            "_NUM_ADDED_FILES": len(entries) - removed,
            "_NUM_DELETED_FILES": removed,
            "_PARTITION_STATS": _statistics([]),
            "_SCHEMA_ID": schema["id"],
        }
        return [said]

    def _snapshot(
        self, before: Record | None, step: Step, manifests: tuple[Sequence[Record], ...]
    ) -> dict[str, Any]:
        """A snapshot without schema and rows; writes lists of what there was and what changes."""
        lists = f"manifest-list-{uuid.uuid4()}"
        said: dict[str, Any] = {}
        for place, name in enumerate(("baseManifestList", "deltaManifestList")):
            said[name] = f"{lists}-{place}"
            size = self._write(said[name], MANIFEST_FILE_META_SCHEMA, manifests[place])
            said[f"{name}Size"] = size
        return said | {
            "version": _VERSION,
            "id": 1 if before is None else before["id"] + 1,
            "uuid": str(uuid.uuid4()),
            "commitUser": f"fermion {step.position.source.table_uuid}",
            "commitIdentifier": step.snapshot.id,
            "commitKind": _KINDS[step.kind],
            "timeMillis": now_ms(),
            "properties": properties_of(step.position, step.snapshot),
        }


def _rows(entries: Mapping[str, Record]) -> int:
    return sum(entry["_FILE"]["_ROW_COUNT"] for entry in entries.values())


def _entry(copy: Copy, schema: Record) -> dict[str, Any]:
    """What a manifest says of a file that is added."""
    types = {each["name"]: each["type"] for each in schema["fields"]}
    there = set(copy.footer.schema.to_arrow_schema().names)
    absent = (
        (name, copy.rows, None, None)
        for name, dtype in types.items()
        if name not in there and isinstance(dtype, str)
    )
    known = [
        (DataField(place, name, AtomicType(types[name])), nulls, low, high)
        for place, (name, nulls, low, high) in enumerate((*copy.bounds(), *absent))
        if low is not None or nulls == copy.rows
    ]
    nothing = _statistics([])
    return {
        "_VERSION": _ENTRY_VERSION,
        "_KIND": _ADD,
        "_PARTITION": nothing["_MIN_VALUES"],
        "_BUCKET": 0,
        "_TOTAL_BUCKETS": _BUCKETS,
        "_FILE": {
            "_FILE_NAME": copy.name,
            "_FILE_SIZE": copy.size,
            "_ROW_COUNT": copy.rows,
            "_MIN_KEY": nothing["_MIN_VALUES"],
            "_MAX_KEY": nothing["_MIN_VALUES"],
            "_KEY_STATS": nothing,
            "_VALUE_STATS": _statistics(known),
            "_MIN_SEQUENCE_NUMBER": 0,
            "_MAX_SEQUENCE_NUMBER": max(copy.rows - 1, 0),
            "_SCHEMA_ID": schema["id"],
            "_LEVEL": 0,
            "_EXTRA_FILES": [],
            "_CREATION_TIME": now_ms(),
            "_DELETE_ROW_COUNT": 0,
            "_FILE_SOURCE": 0,  # appended
            "_VALUE_STATS_COLS": [column.name for column, *_ in known],
        },
    }


def _statistics(columns: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Bounds as Paimon's rows.

    columns: Each with its field, its number of nulls, and its least and greatest value.
    """
    fields = [column[0] for column in columns]
    low, high = (
        GenericRowSerializer.to_bytes(GenericRow([column[at] for column in columns], fields))
        for at in (2, 3)
    )
    return {
        "_MIN_VALUES": low,
        "_MAX_VALUES": high,
        "_NULL_COUNTS": [column[1] for column in columns],
    }


def _ids(fields: Iterable[Field]) -> Iterator[int]:
    """The ids of fields and of those inside them."""
    for each in fields:
        yield each.id
        yield from _ids(each.children)


def _json_field(field: Field, dtype: pa.DataType) -> dict[str, Any]:
    said = {"id": field.id, "name": field.name, "type": _json_type(field, dtype)}
    return said if field.comment is None else {**said, "description": field.comment}


def _json_type(field: Field, dtype: pa.DataType) -> Any:
    """A type in Paimon's JSON; those of structs have the ids of their fields."""
    if field.kind == "struct":
        pairs = zip(field.children, dtype, strict=True)
        return {"type": "ROW", "fields": [_json_field(child, each.type) for child, each in pairs]}
    if field.kind == "map":
        key, value = field.children
        return {
            "type": "MAP",
            "key": _json_type(key, dtype.key_type),
            "value": _json_type(value, dtype.item_type),
        }
    if field.children:
        return {"type": "ARRAY", "element": _json_type(field.children[0], dtype.value_type)}
    if pat.is_decimal(dtype):
        return f"DECIMAL({dtype.precision}, {dtype.scale})"
    return _NAMES[dtype]

"""A Delta table that shows a table: plain Parquet files and a log that any reader understands.

Columns are found by name, without column mapping, so that the oldest readers will do. Partitions
are those by whole columns of integers, strings, dates and booleans.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from fermion.errors import InvalidArgumentError
from fermion_table.mirrors.copies import Copy
from fermion_table.mirrors.delta_log import (
    CHECKPOINT_INTERVAL,
    Action,
    DeltaState,
    add_commit,
    read_log,
    write_checkpoint,
)
from fermion_table.mirrors.target import (
    SNAPSHOT_ID,
    MirrorTarget,
    Position,
    Source,
    Step,
    TargetState,
    foreign_commit,
    position_of,
    properties_of,
)
from fermion_table.mirrors.types import copied_field, plain_leaf
from fermion_table.moments import now_ms
from fermion_table.schema import value_codec
from fermion_table.schema.schema import Field, PartitionField, TableSchema

FORBIDDEN_IN_NAMES = " ,;{}()\n\t="
"""Characters that Delta takes in names of columns only with column mapping."""
_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}
_WITHOUT_ZONE = "timestampNtz"
_OPERATIONS = {
    "append": ("WRITE", "Append"),
    "delete": ("DELETE", None),
    "overwrite": ("WRITE", "Overwrite"),
    "replace": ("OPTIMIZE", None),
    "none": ("WRITE", "Append"),
}


def delta_leaf(dtype: pa.DataType) -> pa.DataType | None:
    """The type that Delta has for one of Arrow's."""
    if pat.is_time(dtype):
        return None
    plain = plain_leaf(dtype)
    return pa.binary() if plain is not None and pat.is_fixed_size_binary(plain) else plain


class DeltaTarget(MirrorTarget):
    """A Delta table in a directory."""

    kind = "delta"
    table = "a Delta table"
    by_name = True
    leaf = staticmethod(delta_leaf)

    def check(self, schema: TableSchema) -> None:
        """Refuse types, and names of columns, that Delta does not have.

        Raises UnsupportedTypeError, InvalidArgumentError.
        """
        super().check(schema)
        self._check_names(schema.fields, ())

    def _check_names(self, fields: tuple[Field, ...], above: tuple[str, ...]) -> None:
        seen: dict[str, str] = {}
        for field in fields:
            shown = ".".join((*above, field.name))
            forbidden = [each for each in FORBIDDEN_IN_NAMES if each in field.name]
            if forbidden:
                raise InvalidArgumentError(
                    f"{self.where}: column {shown!r}: Delta takes no {forbidden[0]!r} in names"
                )
            other = seen.setdefault(field.name.lower(), field.name)
            if other != field.name:
                raise InvalidArgumentError(
                    f"{self.where}: columns {other!r} and {shown!r}: Delta does not tell upper "
                    "case from lower case"
                )
            inside = field.children if field.kind == "struct" else ()
            self._check_names(inside, (*above, field.name))

    def partition_by(self, schema: TableSchema) -> tuple[PartitionField, ...]:
        """Those by whole columns whose values Delta's log tells apart, unless these are all.

        Their values are in the files, too, for readers that look there.
        """
        chosen = tuple(
            part
            for part in schema.partition_by
            if part.transform == "identity" and _partitions(schema.by_id[part.source_id])
        )
        return chosen if len({part.source_id for part in chosen}) < len(schema.fields) else ()

    def load(self, source: Source) -> TargetState:
        """Where the mirror stands, by its log."""
        state = read_log(self.store)
        if state.version < 0:
            return TargetState(detail=state)
        for version, info, changes in state.commits:
            if changes and SNAPSHOT_ID not in info:
                operation = info.get("operation", "a commit that does not say what it is")
                engine = info.get("engineInfo", "an unnamed engine")
                raise foreign_commit(self.where, f"version {version} ({operation} by {engine})")
        position = self._position(state, source)
        names = frozenset(path.rsplit("/", 1)[-1] for path in state.files)
        return TargetState(position, names, state)

    def _position(self, state: DeltaState, source: Source) -> Position:
        """The snapshot that the newest commit of the mirror shows."""
        known = [found for _, info, _ in state.commits if (found := position_of(info)) is not None]
        application = state.transactions.get(_application(source))
        if application is None or (known and known[-1].source != source):
            raise self.no_mirror_of(source)
        if known:
            return known[-1]
        return Position(source, int(application["version"]), None)

    def commit(self, state: TargetState, step: Step) -> TargetState | None:
        """Add one version to the log."""
        log: DeltaState = state.detail
        now = max(now_ms(), 1)
        actions = list(self._actions(log, step, now))
        after = add_commit(self.store, log, actions)
        if after is None:
            return None
        if after.version and after.version % CHECKPOINT_INTERVAL == 0:
            write_checkpoint(self.store, after, now)
        names = state.copies.difference(step.removed).union(copy.name for copy in step.added)
        return TargetState(step.position, names, after)

    def _actions(self, log: DeltaState, step: Step, now: int) -> Iterator[Action]:
        operation, mode = _OPERATIONS[step.kind]
        if log.version < 0:
            operation = "CREATE TABLE"
        yield {
            "commitInfo": {
                "timestamp": now,
                "operation": operation,
                "operationParameters": {} if mode is None else {"mode": mode},
                "isBlindAppend": step.kind == "append",
                "engineInfo": "fermion",
                **properties_of(step.position, step.snapshot),
            }
        }
        version = {"version": step.snapshot.id, "lastUpdated": now}
        yield {"txn": {"appId": _application(step.position.source), **version}}
        yield from self._definition(log, step, now)
        changes = step.kind != "replace"
        for name in step.removed:
            path = self.path_of(name)
            known = log.files[path]
            yield {
                "remove": {
                    "path": path,
                    "deletionTimestamp": now,
                    "dataChange": changes,
                    "extendedFileMetadata": True,
                    "partitionValues": known["partitionValues"],
                    "size": known["size"],
                }
            }
        for copy in step.added:
            yield {
                "add": {
                    "path": copy.path,
                    "partitionValues": self._partition_values(copy, step.schema),
                    "size": copy.size,
                    "modificationTime": now,
                    "dataChange": changes,
                    "stats": json.dumps(statistics(copy)),
                }
            }

    def _definition(self, log: DeltaState, step: Step, now: int) -> Iterator[Action]:
        """Protocol and metadata, where they change."""
        parts = self.partition_by(step.schema)
        fields = [_json_field(field) for field in step.schema.fields]
        said = json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False)
        columns = [step.schema.by_id[part.source_id].name for part in parts]
        protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
        if "timestamp_ntz" in said and _has_times_without_zone(fields):
            features = [_WITHOUT_ZONE]
            protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
            protocol |= {"readerFeatures": features, "writerFeatures": features}
        known = log.protocol
        if known is None or known["minReaderVersion"] < protocol["minReaderVersion"]:
            yield {"protocol": protocol}
        old = log.metadata or {}
        if old.get("schemaString") != said or old.get("partitionColumns") != columns:
            yield {
                "metaData": {
                    "id": old.get("id") or str(uuid.uuid4()),
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": said,
                    "partitionColumns": columns,
                    "configuration": {},
                    "createdTime": old.get("createdTime") or now,
                }
            }

    def _partition_values(self, copy: Copy, schema: TableSchema) -> dict[str, str | None]:
        chosen = self.partition_by(schema)
        values = {}
        for part, value in zip(schema.partition_by, copy.partition, strict=True):
            if part not in chosen:
                continue
            field = schema.by_id[part.source_id]
            if value == "":
                raise InvalidArgumentError(
                    f"{self.where}: column {field.name!r} has a partition whose value is the empty "
                    "text, which Delta does not tell from null"
                )
            values[field.name] = _partition_text(value, field.type)
        return values


def _application(source: Source) -> str:
    """The name under which Delta notes the newest snapshot."""
    return f"fermion {source.table_uuid} {source.branch}"


def _partitions(field: Field) -> bool:
    """Whether Delta can partition by a column: its log has values as text, exactly."""
    dtype = delta_leaf(field.type.value_type if pat.is_dictionary(field.type) else field.type)
    return dtype is not None and bool(
        pat.is_integer(dtype) or pat.is_string(dtype) or pat.is_date(dtype) or pat.is_boolean(dtype)
    )


def _partition_text(value: Any, dtype: pa.DataType) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if pat.is_date(dtype):
        return str(value_codec.decode_value(value, dtype).cast(pa.date32()).as_py())
    return str(value)


def _json_field(field: Field) -> dict[str, Any]:
    metadata = {} if field.comment is None else {"comment": field.comment}
    dtype = copied_field(field, delta_leaf, ids=False).type
    return {"name": field.name, "type": _json_type(dtype), "nullable": True, "metadata": metadata}


def _json_type(dtype: pa.DataType) -> Any:
    if pat.is_struct(dtype):
        fields = [
            {"name": each.name, "type": _json_type(each.type), "nullable": True, "metadata": {}}
            for each in dtype
        ]
        return {"type": "struct", "fields": fields}
    if pat.is_map(dtype):
        return {
            "type": "map",
            "keyType": _json_type(dtype.key_type),
            "valueType": _json_type(dtype.item_type),
            "valueContainsNull": True,
        }
    if pat.is_list(dtype):
        element = _json_type(dtype.value_type)
        return {"type": "array", "elementType": element, "containsNull": True}
    if pat.is_decimal(dtype):
        return f"decimal({dtype.precision},{dtype.scale})"
    return _NAMES[dtype]


def _has_times_without_zone(value: Any) -> bool:
    """Whether a type in JSON is, or holds, ``timestamp_ntz``."""
    if isinstance(value, list):
        return any(map(_has_times_without_zone, value))
    if isinstance(value, Mapping):
        places = ("type", "fields", "elementType", "keyType", "valueType")
        return any(_has_times_without_zone(value[each]) for each in places if each in value)
    return bool(value == "timestamp_ntz")


def statistics(copy: Copy) -> dict[str, Any]:
    """What Delta keeps of a file: its rows, and of its first plain columns bounds and nulls."""
    said: dict[str, Any] = {"numRecords": copy.rows, "minValues": {}, "maxValues": {}}
    nulls: dict[str, int] = {}
    for name, count, low, high in copy.bounds():
        nulls[name] = count
        if low is not None:
            said["minValues"][name] = _bound(low)
            said["maxValues"][name] = _bound(high)
    return {**said, "nullCount": nulls}


def _bound(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.date) else value

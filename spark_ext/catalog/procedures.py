"""Procedures of a catalog: ``CALL catalog.system.create_tag('db.t', 'v1')``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table import MaintenanceResult, StorageAccess, Table
from spark_ext.maintenance.compaction import compact
from spark_ext.maintenance.expiry import expire, remove_orphans

NAMESPACE = "system"
REQUIRED = None
NULL = "NULL"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a procedure: its type is Spark's, in JSON without quotes.

    The default is SQL; None: the argument is required, and must not be NULL.
    """

    name: str
    type: str
    default: str | None = NULL
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """The table that a procedure is called for, and the session that runs it."""

    spark: SparkSession
    table: Table
    storage_options: dict[str, Any] | None
    access: StorageAccess

    def arguments(self) -> dict[str, Any]:
        """The arguments of functions of `spark_ext` that name the table."""
        return {
            "path": self.table.location,
            "storage_options": self.storage_options,
            "access": self.access,
        }


@dataclass(frozen=True, slots=True)
class ProcedureDefinition:
    """A procedure, whose first parameter names the table.

    `run` is called with the `Target` and the other arguments by name, and returns the values of the
    row whose columns `result` has.
    """

    description: str
    parameters: tuple[Parameter, ...]
    result: pa.Schema
    run: Callable[..., Mapping[str, Any]]


_TABLE = Parameter("table", "string", REQUIRED, "the table: db.t, or catalog.db.t")
_DRY_RUN = Parameter("dry_run", "boolean", "false", "only say what would be done")
_OLDER = "before this time"
_MESSAGE = Parameter("message", "string", NULL, "for the history")
_VERSION = Parameter(
    "version", "string", NULL, "a snapshot id, tag, branch or time; by default the newest snapshot"
)
_STRINGS = '{"type":"array","elementType":"string","containsNull":true}'


def _counts(*names: str) -> list[pa.Field]:
    return [pa.field(name, pa.int64()) for name in names]


_MAINTENANCE = pa.schema(
    [
        *_counts("snapshots", "snapshot_files", "tags"),
        *_counts("data_files", "metadata_objects", "bytes"),
        ("paths", pa.list_(pa.string())),
        ("dry_run", pa.bool_()),
    ]
)
_MOVED = pa.schema(_counts("previous_snapshot_id", "current_snapshot_id"))
_COMPACTION = pa.schema(
    [
        *_counts("groups", "groups_dropped", "files_before", "files_after", "files_upgraded"),
        *_counts("bytes_before", "bytes_after", "rows"),
        ("snapshots", pa.list_(pa.int64())),
        ("dry_run", pa.bool_()),
    ]
)


def _compact(target: Target, *, where: str | None, **options: Any) -> dict[str, Any]:
    result = compact(target.spark, **target.arguments(), filter=where, **options)
    return {name: getattr(result, name) for name in _COMPACTION.names}


def _expire_snapshots(target: Target, **options: Any) -> dict[str, Any]:
    return _maintained(expire(target.spark, **target.arguments(), **options))


def _remove_orphan_files(target: Target, **options: Any) -> dict[str, Any]:
    return _maintained(remove_orphans(target.spark, **target.arguments(), **options))


def _maintained(result: MaintenanceResult) -> dict[str, Any]:
    return {
        "snapshots": result.snapshots,
        "snapshot_files": result.slots,
        "tags": result.tags,
        "data_files": result.files,
        "metadata_objects": result.objects,
        "bytes": result.bytes,
        "paths": list(result.paths),
        "dry_run": result.dry_run,
    }


def _restore(target: Target, *, version: int | str, message: str | None = None) -> dict[str, Any]:
    previous = target.table.snapshot.id
    current = target.table.restore(version, message=message).id
    return {"previous_snapshot_id": previous, "current_snapshot_id": current}


def _create_tag(
    target: Target, *, tag: str, version: str | None, keep_days: int | None, message: str | None
) -> dict[str, Any]:
    if keep_days is not None and keep_days < 1:
        raise InvalidArgumentError(f"keep_days={keep_days}: expected at least 1")
    keep = None if keep_days is None else timedelta(days=keep_days)
    made = target.table.tags.create(tag, version=version, keep=keep, message=message)
    return {"tag": made.name, "snapshot_id": made.snapshot_id}


def _delete_tag(target: Target, *, tag: str) -> dict[str, Any]:
    target.table.tags.delete(tag)
    return {"tag": tag}


def _create_branch(
    target: Target, *, branch: str, version: str | None, message: str | None
) -> dict[str, Any]:
    made = target.table.branches.create(branch, version=version, message=message)
    return {"branch": made.name, "snapshot_id": made.snapshot_id}


def _delete_branch(target: Target, *, branch: str) -> dict[str, Any]:
    target.table.branches.delete(branch)
    return {"branch": branch}


def _fast_forward(target: Target, *, branch: str, message: str | None) -> dict[str, Any]:
    moved = target.table.branches.fast_forward(branch, message=message)
    return {"branch": moved.branch, "snapshot_id": moved.id}


_TAG = Parameter("tag", "string", REQUIRED, "its name")
_BRANCH = Parameter("branch", "string", REQUIRED, "its name")
_TAG_RESULT = pa.schema([("tag", pa.string()), ("snapshot_id", pa.int64())])
_BRANCH_RESULT = pa.schema([("branch", pa.string()), ("snapshot_id", pa.int64())])

PROCEDURES: dict[str, ProcedureDefinition] = {
    "compact": ProcedureDefinition(
        "Rewrite small files as larger ones, or merge the sorted runs of a primary-key table, in "
        "a Spark job.",
        (
            _TABLE,
            Parameter("where", "string", NULL, "only files that may hold rows of this condition"),
            Parameter("target_size", "string", NULL, "of a file, such as 256MB"),
            Parameter("min_input_files", "integer", "2", "do not rewrite fewer small files"),
            Parameter("sort_by", _STRINGS, NULL, "columns to sort by, or zorder(a, b)"),
            Parameter("full", "boolean", "false", "merge all runs of a primary-key table"),
            Parameter("max_groups_per_commit", "integer", NULL, "commit after so many groups"),
            _DRY_RUN,
        ),
        _COMPACTION,
        _compact,
    ),
    "expire_snapshots": ProcedureDefinition(
        "Expire old snapshots and delete data that only they use.",
        (
            _TABLE,
            Parameter("older_than", "timestamp", NULL, f"{_OLDER}; by default 7 days ago"),
            Parameter("retain_last", "integer", NULL, "this many stay; by default 10"),
            _DRY_RUN,
        ),
        _MAINTENANCE,
        _expire_snapshots,
    ),
    "remove_orphan_files": ProcedureDefinition(
        "Delete files of failed writers that no snapshot refers to.",
        (
            _TABLE,
            Parameter("older_than", "timestamp", NULL, f"{_OLDER}; by default 3 days ago"),
            _DRY_RUN,
        ),
        _MAINTENANCE,
        _remove_orphan_files,
    ),
    "rollback_to_snapshot": ProcedureDefinition(
        "Go back to a snapshot, as a new snapshot.",
        (_TABLE, Parameter("snapshot_id", "long", REQUIRED, "the snapshot to go back to")),
        _MOVED,
        lambda target, snapshot_id: _restore(target, version=snapshot_id),
    ),
    "restore": ProcedureDefinition(
        "Go back to a version, as a new snapshot.",
        (
            _TABLE,
            Parameter("version", "string", REQUIRED, "a snapshot id, tag, branch or time"),
            _MESSAGE,
        ),
        _MOVED,
        _restore,
    ),
    "create_tag": ProcedureDefinition(
        "Give a snapshot a name, which keeps its data.",
        (
            _TABLE,
            _TAG,
            _VERSION,
            Parameter("keep_days", "integer", NULL, "how long it lasts; by default for ever"),
            _MESSAGE,
        ),
        _TAG_RESULT,
        _create_tag,
    ),
    "delete_tag": ProcedureDefinition(
        "Delete a tag.", (_TABLE, _TAG), pa.schema([("tag", pa.string())]), _delete_tag
    ),
    "create_branch": ProcedureDefinition(
        "Begin a branch at a snapshot.",
        (_TABLE, _BRANCH, _VERSION, _MESSAGE),
        _BRANCH_RESULT,
        _create_branch,
    ),
    "delete_branch": ProcedureDefinition(
        "Delete a branch.",
        (_TABLE, _BRANCH),
        pa.schema([("branch", pa.string())]),
        _delete_branch,
    ),
    "fast_forward": ProcedureDefinition(
        "Move the branch that a branch left to the latest state of that branch.",
        (_TABLE, _BRANCH, _MESSAGE),
        _BRANCH_RESULT,
        _fast_forward,
    ),
}


def value_of(parameter: Parameter, row: Any, place: int) -> Any:
    """The Python value of an argument in Spark's row.

    Raises InvalidArgumentError: NULL for an argument that is required.
    """
    if row.isNullAt(place):
        if parameter.default != NULL:
            raise InvalidArgumentError(f"argument {parameter.name}: expected a value, found NULL")
        return None
    return _READERS[parameter.type](row, place)


def _strings(row: Any, place: int) -> list[str]:
    array = row.getArray(place)
    count = array.numElements()
    if any(array.isNullAt(number) for number in range(count)):
        raise InvalidArgumentError("sort_by: expected no NULL in the list")
    return [array.getUTF8String(number).toString() for number in range(count)]


_READERS: dict[str, Callable[[Any, int], Any]] = {
    "string": lambda row, place: row.getUTF8String(place).toString(),
    "boolean": lambda row, place: row.getBoolean(place),
    "integer": lambda row, place: row.getInt(place),
    "long": lambda row, place: row.getLong(place),
    "timestamp": lambda row, place: (
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row.getLong(place))
    ),
    _STRINGS: _strings,
}

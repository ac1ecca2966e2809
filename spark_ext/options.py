"""The options of ``format("fermion")`` and of a catalog's tables, and where each is allowed."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import Enum
from typing import Any

from fermion.engine import refuse_credentials
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table import StorageAccess
from fermion_table.moments import moment_of


class Use(Enum):
    """A way to use a table: each has its own options."""

    READ = 'a batch read with format("fermion")'
    WRITE = 'a batch write with format("fermion")'
    STREAM_READ = 'a stream read with format("fermion")'
    STREAM_WRITE = 'a stream write with format("fermion")'
    CATALOG_READ = "a batch read of a catalog's table"
    CATALOG_WRITE = "a batch write to a catalog's table"
    CATALOG_CREATE = "creating or replacing a catalog's table from a query"
    CATALOG_CHANGE = "UPDATE, DELETE or MERGE of a catalog's table"
    CATALOG_STREAM_READ = "a stream read of a catalog's table"
    CATALOG_STREAM_WRITE = "a stream write to a catalog's table"


FORMAT_USES = (Use.READ, Use.WRITE, Use.STREAM_READ, Use.STREAM_WRITE)
READS = (Use.READ, Use.CATALOG_READ)
WRITES = (Use.WRITE, Use.CATALOG_WRITE)
STREAM_READS = (Use.STREAM_READ, Use.CATALOG_STREAM_READ)
STREAM_WRITES = (Use.STREAM_WRITE, Use.CATALOG_STREAM_WRITE)

OPTIONS: dict[str, tuple[Use, ...]] = {
    "path": FORMAT_USES,
    "storageOptions": FORMAT_USES,
    "allowedRoots": FORMAT_USES,
    "missingIsForbidden": FORMAT_USES,
    "timeoutSeconds": FORMAT_USES,
    "branch": tuple(use for use in Use if use is not Use.CATALOG_CREATE),
    "snapshotId": READS,
    "tag": READS,
    "asOf": READS,
    "columns": (Use.READ, Use.STREAM_READ),
    "filter": READS + STREAM_READS,
    "batchId": READS + STREAM_READS,
    "blobs": READS,
    "readChangeFeed": READS + STREAM_READS,
    "startingSnapshotId": READS + STREAM_READS,
    "endingSnapshotId": READS,
    "skipRewrites": STREAM_READS,
    "maxFilesPerTrigger": STREAM_READS,
    "commitUser": (*WRITES, Use.CATALOG_CREATE, Use.CATALOG_CHANGE, *STREAM_WRITES),
    "commitIdentifier": (*WRITES, Use.CATALOG_CREATE, Use.CATALOG_CHANGE),
    "changeType": WRITES + STREAM_WRITES,
    "mergeSchema": (Use.WRITE,),
    "partitionBy": (Use.WRITE,),
    "primaryKey": (Use.WRITE,),
    "sortBy": (Use.WRITE,),
    "tableProperties": (Use.WRITE,),
    "replaceWhere": WRITES,
    "partitionOverwriteMode": WRITES,
    "checkpointLocation": STREAM_WRITES,
    "queryName": STREAM_WRITES,  # Spark passes the argument of its own queryName()
}
"""Every option, and the uses in which it is allowed: in any other use it is an error."""

VERSION_OPTIONS = ("snapshotId", "tag", "asOf", "branch")
"""Options that choose a snapshot of a table."""
LOADING_OPTIONS = (*VERSION_OPTIONS, "readChangeFeed", "endingSnapshotId", "changeType", "blobs")
"""Options on which the columns of a catalog's table depend."""

_INSTEAD = {
    ("snapshotId", Use.STREAM_READ): "startingSnapshotId says where a stream begins",
    ("snapshotId", Use.CATALOG_STREAM_READ): "startingSnapshotId says where a stream begins",
    ("commitIdentifier", Use.STREAM_WRITE): "a stream's commits are numbered by its micro-batches",
    ("columns", Use.CATALOG_READ): "the query names the columns",
    ("mergeSchema", Use.CATALOG_WRITE): "ALTER TABLE adds columns",
    ("endingSnapshotId", Use.STREAM_READ): "a stream reads what is committed later, too",
    ("endingSnapshotId", Use.CATALOG_STREAM_READ): "a stream reads what is committed later, too",
}
_NAMED_AT_INSTALLATION = "install_catalog(access=) sets it for all tables of a catalog"
_INSTEAD |= {
    (name, use): _NAMED_AT_INSTALLATION
    for name in ("allowedRoots", "missingIsForbidden", "timeoutSeconds")
    for use in Use
    if use not in FORMAT_USES
}
DEFAULT_ACCESS = StorageAccess()
_KNOWN = {name.lower(): name for name in OPTIONS}
_COMMA = re.compile(r",(?![^()]*\))")
"""Between names, not between the arguments of ``bucket(16, id)``."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The parsed options of ``format("fermion")``. Picklable.

    path: The table: absolute, or a URL.
    snapshot_id, tag, as_of, batch_id, columns, filter, blobs: As for `fermion_table.Table.scan`;
        as_of is a time.
    branch: Which branch is read or written.
    commit_user, commit_identifier: As for `spark_ext.append`.
    change_type: As for `spark_ext.upsert`.
    merge_schema: Whether a write adds the columns that the table lacks.
    replace_where, dynamic: In mode overwrite: a filter of the rows that are replaced, or whether
        partitions are replaced; see `spark_ext.overwrite`.
    read_change_feed: Whether changes of rows are read, of all kinds: see `spark_ext.read_changes`.
    starting_snapshot_id, ending_snapshot_id: Of a stream, and of a batch of changes: the snapshot
        after which it begins. Of a batch of changes: its last one; None: the newest.
    skip_rewrites, max_files: Of a stream: whether it skips snapshots that rewrite rows, and the
        most files that a micro-batch reads.
    partition_by, primary_key, sort_by, table_properties: Of a table that a write creates: see
        `fermion_table.Table.create`.
    storage_options: For fsspec.
    access: See `fermion_table.StorageAccess`.
    """

    path: str
    snapshot_id: int | None = None
    tag: str | None = None
    as_of: datetime | str | None = None
    branch: str | None = None
    batch_id: int | None = None
    columns: Sequence[str | Sequence[str]] | None = None
    filter: Any = None
    blobs: Any = "bytes"
    commit_user: str | None = None
    commit_identifier: str | None = None
    change_type: str | None = None
    merge_schema: bool = False
    replace_where: str | None = None
    dynamic: bool = False
    read_change_feed: bool = False
    starting_snapshot_id: int | None = None
    ending_snapshot_id: int | None = None
    skip_rewrites: bool = False
    max_files: int | None = None
    partition_by: Sequence[str] | None = None
    primary_key: Sequence[str] | None = None
    sort_by: Sequence[str] | None = None
    table_properties: Mapping[str, str] | None = None
    storage_options: dict[str, Any] | None = field(default=None, repr=False)
    access: StorageAccess = DEFAULT_ACCESS


def parse_options(given: Mapping[str, str], *uses: Use) -> SourceOptions:
    """Check the names, uses and values of options, and parse them.

    given: Texts by name; as in Spark, upper and lower case of names are equal.
    uses: The possible uses; none: any use of the format.
    Raises InvalidArgumentError: An option is unknown (the message has the closest known one), has
        no meaning in these uses (the message has those where it is allowed), or has a wrong value;
        or one of commitUser and commitIdentifier is missing.
    """
    values = {name.lower(): value for name, value in known_options(given, *uses).items()}
    if not values.get("path"):
        raise InvalidArgumentError("no path: name the table with load(path) or save(path)")
    columns = values.get("columns")
    as_of = values.get("asof")
    options = SourceOptions(
        path=absolute(values["path"]),
        snapshot_id=_integer(values, "snapshotId", least=0),
        tag=values.get("tag"),
        as_of=None if as_of is None else moment_of(as_of, "option asOf"),
        branch=values.get("branch"),
        batch_id=_integer(values, "batchId"),
        columns=None if columns is None else parse_columns(columns),
        filter=values.get("filter"),
        blobs=values.get("blobs", "bytes"),
        commit_user=values.get("commituser"),
        commit_identifier=values.get("commitidentifier"),
        change_type=values.get("changetype"),
        merge_schema=_boolean(values, "mergeSchema"),
        replace_where=values.get("replacewhere"),
        dynamic=_is_dynamic(values),
        read_change_feed=_boolean(values, "readChangeFeed"),
        starting_snapshot_id=_integer(values, "startingSnapshotId", least=0),
        ending_snapshot_id=_integer(values, "endingSnapshotId", least=0),
        skip_rewrites=_boolean(values, "skipRewrites"),
        max_files=_integer(values, "maxFilesPerTrigger", least=1),
        partition_by=_listed(values, "partitionBy"),
        primary_key=_listed(values, "primaryKey"),
        sort_by=_listed(values, "sortBy"),
        table_properties=_settings(values, "tableProperties"),
        storage_options=_json_object(values, "storageOptions"),
        access=_access(values),
    )
    _check_together(options, uses)
    return options


def known_options(given: Mapping[str, str], *uses: Use) -> dict[str, str]:
    """The same options under the names of `OPTIONS`; their values are not checked.

    Raises InvalidArgumentError: An option is unknown, or has no meaning in the uses, or without
        readChangeFeed.
    """
    uses = uses or FORMAT_USES
    known: dict[str, str] = {}
    for spelled, value in given.items():
        if spelled.lower() == "paths":
            raise InvalidArgumentError("load() takes one table, not a list of paths")
        name = _KNOWN.get(spelled.lower())
        if name is None:
            raise InvalidArgumentError(_unknown(spelled.lower(), uses))
        if not set(uses).intersection(OPTIONS[name]):
            raise InvalidArgumentError(_misplaced(name, uses))
        known[name] = value
    bounds = [name for name in ("startingSnapshotId", "endingSnapshotId") if name in known]
    if bounds and set(uses) <= set(READS) and known.get("readChangeFeed", "").lower() != "true":
        raise InvalidArgumentError(
            f"option {bounds[0]} of a batch read needs readChangeFeed=true; to read one snapshot "
            "use snapshotId"
        )
    return known


def table_options(
    path: str,
    storage_options: Mapping[str, Any] | None,
    access: StorageAccess = DEFAULT_ACCESS,
) -> dict[str, str]:
    """The options, as texts, for a table's path and for how its storage is used.

    Raises InvalidArgumentError: JSON cannot hold the storage options.
    """
    options = {"path": path}
    if access.allowed_roots:
        options["allowedRoots"] = json.dumps(list(access.allowed_roots))
    if access.missing_is_forbidden:
        options["missingIsForbidden"] = "true"
    if access.timeout_s != DEFAULT_ACCESS.timeout_s:
        options["timeoutSeconds"] = repr(float(access.timeout_s))
    if not storage_options:
        return options
    try:
        return {**options, "storageOptions": json.dumps(dict(storage_options))}
    except (TypeError, ValueError):  # never the values in a message
        raise InvalidArgumentError(
            f"{path}: storage_options that Spark passes on have to be JSON: texts, numbers, lists"
        ) from None


def chosen_access(access: StorageAccess | None) -> StorageAccess:
    """The access that a caller chose; None: the defaults.

    Raises InvalidArgumentError: Not a StorageAccess.
    """
    if access is not None and not isinstance(access, StorageAccess):
        raise InvalidArgumentError(f"access={access!r:.80}: expected a StorageAccess")
    return DEFAULT_ACCESS if access is None else access


def options_of(store: Any) -> dict[str, str]:
    """The options for the table of a store, as `table_options` makes them."""
    access = getattr(store, "access", DEFAULT_ACCESS)
    return table_options(store.location, store.storage_options, access)


def absolute(path: str | os.PathLike[str], what: str = "path") -> str:
    """A path that is the same in every process: URLs stay, local paths become absolute.

    Raises InvalidArgumentError: Not a path, or one with credentials.
    """
    path = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(path, str) or not path:
        raise InvalidArgumentError(f"{what}: expected a path or a URL, found {path!r:.80}")
    refuse_credentials(path, what)
    return path if "://" in path or "::" in path else os.path.abspath(os.path.expanduser(path))


def parse_columns(text: str, option: str = "columns") -> list[str]:
    """Parse names separated by commas, or a JSON list of names (for names with commas).

    Raises InvalidArgumentError: It begins like a JSON list, but is not one.
    """
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError as error:
            raise InvalidArgumentError(f"option {option}={text!r}: {error}") from error
        if not all(isinstance(name, str) for name in names):
            raise InvalidArgumentError(f"option {option}={text!r}: expected a list of names")
        return names
    return [name.strip() for name in text.split(",") if name.strip()]


def _check_together(options: SourceOptions, uses: Sequence[Use]) -> None:
    """Refuse options that contradict each other."""
    versions = {"snapshotId": options.snapshot_id, "tag": options.tag, "asOf": options.as_of}
    chosen = [name for name, value in versions.items() if value is not None]
    if options.tag is not None and options.branch is not None:
        chosen.append("branch")
    if len(chosen) > 1:
        raise InvalidArgumentError(f"options {' and '.join(chosen)}: expected one of them")
    if options.replace_where is not None and options.dynamic:
        raise InvalidArgumentError(
            "options replaceWhere and partitionOverwriteMode=dynamic: expected one of them"
        )
    _check_change_feed(options)
    half = (options.commit_user is None) != (options.commit_identifier is None)
    if half and uses and set(uses) <= set(WRITES):
        raise InvalidArgumentError(
            "options commitUser and commitIdentifier: a batch write needs both or neither, found "
            f"only {'commitUser' if options.commit_user is not None else 'commitIdentifier'}"
        )


def _check_change_feed(options: SourceOptions) -> None:
    """Refuse options that have no meaning with readChangeFeed."""
    others = {
        "snapshotId": options.snapshot_id,
        "tag": options.tag,
        "asOf": options.as_of,
        "batchId": options.batch_id,
        "skipRewrites": options.skip_rewrites or None,
        "blobs": None if options.blobs == "bytes" else options.blobs,
    }
    chosen = [name for name, value in others.items() if value is not None]
    if options.read_change_feed and chosen:
        raise InvalidArgumentError(
            f"options readChangeFeed and {' and '.join(chosen)}: expected one of them; changes "
            "lie between startingSnapshotId and endingSnapshotId"
        )


def _unknown(name: str, uses: Sequence[Use]) -> str:
    known = [option for option, allowed in OPTIONS.items() if set(allowed).intersection(uses)]
    near = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.4)
    hint = f"; did you mean {_KNOWN[near[0]]!r}?" if near else f"; known are {sorted(known)}"
    return f"Fermion tables have no option {name!r}{hint}"


def _misplaced(name: str, uses: Sequence[Use]) -> str:
    where = " and ".join(use.value for use in uses)
    allowed = "; ".join(use.value for use in OPTIONS[name])
    instead = next((_INSTEAD[name, use] for use in uses if (name, use) in _INSTEAD), None)
    hint = f" ({instead})" if instead else ""
    return f"option {name} has no meaning in {where}{hint}; it is allowed in: {allowed}"


def _integer(values: Mapping[str, str], name: str, *, least: int | None = None) -> int | None:
    text = values.get(name.lower())
    if text is None:
        return None
    expected = "an integer" if least is None else f"an integer of {least} or more"
    number = int(text) if _INTEGER.fullmatch(text) else None
    if number is None or (least is not None and number < least):
        raise InvalidArgumentError(f"option {name}={text!r}: expected {expected}")
    return number


def _boolean(values: Mapping[str, str], name: str) -> bool:
    text = values.get(name.lower(), "false").lower()
    if text not in ("true", "false"):
        raise InvalidArgumentError(f"option {name}={text!r}: expected true or false")
    return text == "true"


def _is_dynamic(values: Mapping[str, str]) -> bool:
    text = values.get("partitionoverwritemode", "static").lower()
    if text not in ("static", "dynamic"):
        raise InvalidArgumentError(
            f"option partitionOverwriteMode={text!r}: expected static or dynamic"
        )
    return text == "dynamic"


def _access(values: Mapping[str, str]) -> StorageAccess:
    roots = values.get("allowedroots")
    seconds = values.get("timeoutseconds")
    try:
        timeout_s = DEFAULT_ACCESS.timeout_s if seconds is None else float(seconds)
        StorageAccess(timeout_s=timeout_s)
    except ValueError:
        raise InvalidArgumentError(
            f"option timeoutSeconds={seconds!r}: expected a number above 0"
        ) from None
    try:
        return StorageAccess(
            missing_is_forbidden=_boolean(values, "missingIsForbidden"),
            timeout_s=timeout_s,
            allowed_roots=() if roots is None else parse_columns(roots, "allowedRoots"),
        )
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            str(error).replace("allowed_roots", "option allowedRoots")
        ) from None


def _listed(values: Mapping[str, str], name: str) -> list[str] | None:
    text = values.get(name.lower())
    if text is None or text.lstrip().startswith("["):
        return None if text is None else parse_columns(text, name)
    return [name.strip() for name in _COMMA.split(text) if name.strip()]


def _settings(values: Mapping[str, str], name: str) -> dict[str, str] | None:
    settings = _json_object(values, name)
    wrong = [key for key, value in (settings or {}).items() if not isinstance(value, str)]
    if wrong:
        raise InvalidArgumentError(f"option {name}: {wrong[0]}: expected a text")
    return settings


def _json_object(values: Mapping[str, str], name: str) -> dict[str, Any] | None:
    text = values.get(name.lower())
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidArgumentError(f"option {name}: expected a JSON object")  # never its value
    return value

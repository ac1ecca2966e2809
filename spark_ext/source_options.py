"""The options of ``format("fermion")``, parsed and checked."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fermion.errors import InvalidArgumentError

READ_OPTIONS = ("snapshotId", "tag", "asOf", "branch", "columns", "filter", "batchId")
WRITE_OPTIONS = (
    "commitUser",
    "commitIdentifier",
    "mergeSchema",
    "replaceWhere",
    "partitionOverwriteMode",
)
STREAM_OPTIONS = ("startingSnapshotId", "skipRewrites", "maxFilesPerTrigger", "checkpointLocation")
SHARED_OPTIONS = ("path", "storageOptions")

_KNOWN = {
    name.lower(): name for name in (*READ_OPTIONS, *WRITE_OPTIONS, *STREAM_OPTIONS, *SHARED_OPTIONS)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a caller of ``format("fermion")`` asked for. Picklable.

    Attributes
    ----------
    path
        The table: absolute, or a URL.
    snapshot_id, tag, as_of, branch, batch_id, columns, filter
        As for `fermion_table.Table.scan`; as_of is a time.
    commit_user, commit_identifier
        As for `spark_ext.append`.
    merge_schema
        Whether a write adds the columns that the table lacks.
    replace_where, dynamic
        Of mode overwrite: which rows go, or that partitions are replaced; see
        `spark_ext.overwrite`.
    starting_snapshot_id, skip_rewrites, max_files
        Of a stream: the snapshot after which it begins, whether it passes over snapshots that
        rewrite rows, and how many files a micro-batch reads at most.
    storage_options
        For fsspec.
    """

    path: str
    snapshot_id: int | None = None
    tag: str | None = None
    as_of: datetime | str | None = None
    branch: str | None = None
    batch_id: int | None = None
    columns: Sequence[str | Sequence[str]] | None = None
    filter: Any = None
    commit_user: str | None = None
    commit_identifier: str | None = None
    merge_schema: bool = False
    replace_where: str | None = None
    dynamic: bool = False
    starting_snapshot_id: int | None = None
    skip_rewrites: bool = False
    max_files: int | None = None
    storage_options: dict[str, Any] | None = field(default=None, repr=False)


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Check options by name and form.

    Parameters
    ----------
    given
        Texts by name; names are taken in any case, as Spark has them.

    Raises
    ------
    InvalidArgumentError
        An option that does not exist (with the nearest that does), or a value of another form.
    """
    values = {name.lower(): value for name, value in given.items()}
    for name in values:
        if name == "paths":
            raise InvalidArgumentError("load() takes one table, not a list of paths")
        if name not in _KNOWN:
            raise InvalidArgumentError(_unknown(name))
    if not values.get("path"):
        raise InvalidArgumentError("no path: say which table with load(path) or save(path)")
    columns = values.get("columns")
    as_of = values.get("asof")
    return SourceOptions(
        path=absolute(values["path"]),
        snapshot_id=_integer(values, "snapshotId"),
        tag=values.get("tag"),
        as_of=None if as_of is None else parse_time(as_of),
        branch=values.get("branch"),
        batch_id=_integer(values, "batchId"),
        columns=None if columns is None else parse_columns(columns),
        filter=values.get("filter"),
        commit_user=values.get("commituser"),
        commit_identifier=values.get("commitidentifier"),
        merge_schema=_boolean(values, "mergeSchema"),
        replace_where=values.get("replacewhere"),
        dynamic=_is_dynamic(values),
        starting_snapshot_id=_integer(values, "startingSnapshotId"),
        skip_rewrites=_boolean(values, "skipRewrites"),
        max_files=_integer(values, "maxFilesPerTrigger"),
        storage_options=_json_object(values, "storageOptions"),
    )


def absolute(path: str) -> str:
    """A path that means the same in every process: URLs stay, local paths become absolute."""
    return path if "://" in path or "::" in path else os.path.abspath(path)


def parse_columns(text: str) -> list[str]:
    """Names with commas between them, or a JSON list of names (for names that hold commas).

    Raises
    ------
    InvalidArgumentError
        It begins like a JSON list and is none.
    """
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError as error:
            raise InvalidArgumentError(f"option columns={text!r}: {error}") from error
        if not all(isinstance(name, str) for name in names):
            raise InvalidArgumentError(f"option columns={text!r}: expected a list of names")
        return names
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_time(text: str) -> datetime:
    """A time in ISO 8601; without a zone it is UTC.

    Raises
    ------
    InvalidArgumentError
    """
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidArgumentError(
            f"{text!r}: expected a time like 2024-02-29T12:00:00+01:00 (UTC without a zone)"
        ) from error


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.4)
    hint = (
        f"; did you mean {_KNOWN[near[0]]!r}?" if near else f"; known are {sorted(_KNOWN.values())}"
    )
    return f"format fermion has no option {name!r}{hint}"


def _integer(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name.lower())
    if text is None:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise InvalidArgumentError(f"option {name}={text!r}: expected an integer") from error


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


def _json_object(values: Mapping[str, str], name: str) -> dict[str, Any] | None:
    text = values.get(name.lower())
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidArgumentError(f"option {name}: expected a JSON object")  # never its value
    return found

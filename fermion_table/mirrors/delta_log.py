"""The log of a Delta table: commits as JSON, checkpoints as Parquet; read, and one commit added.

It is written here, not by a library: one commit of a mirror changes the schema and any files at
once, on every storage that tables lie on. Only mirrors write to such a log, which makes reading
short: it has commits, and checkpoints of one file.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import pyarrow as pa

from fermion.exports import dataclass
from fermion_table.errors import CorruptMetadata
from fermion_table.storage.store import AtomicStore, CreateResult

Action = Mapping[str, Any]

LOG = "_delta_log"
LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"
CHECKPOINT_INTERVAL = 10
TOMBSTONE_MS = 7 * 86_400_000
"""How long checkpoints name removed files, so that VACUUM knows since when they are gone."""
_COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json")

_TEXTS = pa.map_(pa.string(), pa.string())
_LIST = pa.list_(pa.string())
CHECKPOINT_SCHEMA = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
            }
        ),
        "remove": pa.struct(
            {
                "path": pa.string(),
                "deletionTimestamp": pa.int64(),
                "dataChange": pa.bool_(),
                "extendedFileMetadata": pa.bool_(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": _LIST,
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": _LIST,
                "writerFeatures": _LIST,
            }
        ),
    }
)
_CHANGING = ("add", "remove", "metaData", "protocol")
_MAPS = {"partitionValues", "configuration", "options"}


@dataclass(frozen=True, slots=True)
class DeltaState:
    """What a log says, up to a version.

    version: The newest one; -1: there is no log.
    files, removed: Actions that add the live files, and that removed others, by path.
    metadata, protocol, transactions: The newest actions of these kinds; of transactions by
        application.
    commits: The commits read: version, ``commitInfo`` and whether they change the table. Those
        before the last checkpoint are not among them, but for its own.
    """

    version: int = -1
    files: dict[str, Action] = field(default_factory=dict)
    removed: dict[str, Action] = field(default_factory=dict)
    metadata: Action | None = None
    protocol: Action | None = None
    transactions: dict[str, Action] = field(default_factory=dict)
    commits: tuple[tuple[int, Action, bool], ...] = ()

    def after(self, version: int, actions: Iterable[Action]) -> DeltaState:
        """What the log says after one more commit."""
        files, removed = dict(self.files), dict(self.removed)
        transactions = dict(self.transactions)
        latest = {"metaData": self.metadata, "protocol": self.protocol}
        info: Action = {}
        changes = False
        for action in actions:
            ((kind, body),) = action.items()
            changes = changes or kind in _CHANGING
            if kind == "commitInfo":
                info = body
            elif kind == "txn":
                transactions[body["appId"]] = body
            elif kind in ("add", "remove"):
                here, there = (files, removed) if kind == "add" else (removed, files)
                here[body["path"]] = body
                there.pop(body["path"], None)
            elif kind in latest:
                latest[kind] = body
        return replace(
            self,
            version=version,
            files=files,
            removed=removed,
            metadata=latest["metaData"],
            protocol=latest["protocol"],
            transactions=transactions,
            commits=(*self.commits, (version, info, changes)),
        )


def commit_path(version: int) -> str:
    """The file of a version."""
    return f"{LOG}/{version:020d}.json"


def read_log(store: AtomicStore) -> DeltaState:
    """The newest state of a log.

    Raises CorruptMetadata: A version is missing, or is no JSON.
    """
    versions = sorted(
        int(match[1]) for item in store.list(LOG) if (match := _COMMIT.fullmatch(item.path))
    )
    if not versions:
        return DeltaState()
    state = _checkpoint_state(store, versions[-1])
    for version in range(max(state.version, 0), versions[-1] + 1):
        path = commit_path(version)
        try:
            actions = _actions(store, path)
        except FileNotFoundError:
            if version == state.version:
                continue  # the checkpoint has what it did
            raise CorruptMetadata(path, "a log without gaps", "no such file") from None
        if version == state.version:  # only who wrote it is not in the checkpoint
            info: Action = next(
                (each["commitInfo"] for each in actions if "commitInfo" in each), {}
            )
            changes = any(kind in each for each in actions for kind in _CHANGING)
            state = replace(state, commits=((version, info, changes),))
        else:
            state = state.after(version, actions)
    return state


def _actions(store: AtomicStore, path: str) -> list[Action]:
    try:
        return [json.loads(line) for line in store.read(path).splitlines() if line.strip()]
    except ValueError as error:
        raise CorruptMetadata(path, "lines of JSON", str(error)) from error


def _checkpoint_state(store: AtomicStore, newest: int) -> DeltaState:
    """What the last checkpoint says, if there is one that can be read."""
    import pyarrow.parquet as parquet  # slow to import

    try:
        version = int(json.loads(store.read(LAST_CHECKPOINT))["version"])
        data = store.read(f"{LOG}/{version:020d}.checkpoint.parquet")
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return DeltaState()
    if version > newest:
        return DeltaState()
    rows = parquet.read_table(io.BytesIO(data)).to_pylist(maps_as_pydicts="strict")
    actions = [{kind: body} for row in rows for kind, body in row.items() if body is not None]
    return replace(DeltaState().after(version, actions), commits=())


def add_commit(
    store: AtomicStore, state: DeltaState, actions: Sequence[Action]
) -> DeltaState | None:
    """Add the next version; None: another one has its name, or the storage's reply was lost."""
    version = state.version + 1
    text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in actions)
    created = store.create_if_absent(commit_path(version), text.encode())
    return state.after(version, actions) if created is CreateResult.CREATED else None


def write_checkpoint(store: AtomicStore, state: DeltaState, now_ms: int) -> None:
    """Store the state as one file, so that readers need not read all commits."""
    import pyarrow.parquet as parquet  # slow to import

    kept = [
        body
        for body in state.removed.values()
        if body.get("deletionTimestamp", 0) > now_ms - TOMBSTONE_MS
    ]
    rows: list[Action] = [{"protocol": state.protocol}, {"metaData": state.metadata}]
    rows += [{"txn": body} for body in state.transactions.values()]
    rows += [{"add": body} for body in state.files.values()]
    rows += [{"remove": body} for body in kept]
    table = pa.Table.from_pylist([_with_pairs(row) for row in rows], schema=CHECKPOINT_SCHEMA)
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, compression="snappy", store_schema=False)
    path = f"{LOG}/{state.version:020d}.checkpoint.parquet"
    store.create_if_absent(path, buffer.getvalue())
    said = json.dumps({"version": state.version, "size": len(rows)})
    store.overwrite_hint(LAST_CHECKPOINT, said.encode())


def _with_pairs(value: Any, name: str = "") -> Any:
    """An action with maps as Arrow takes them."""
    if not isinstance(value, Mapping):
        return value
    if name in _MAPS:
        return list(value.items())
    return {key: _with_pairs(inner, key) for key, inner in value.items()}

"""What a mirror's target is asked for: its types, where it stands, and one commit at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.errors import CommitConflict
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.mirrors.copies import Copy
from fermion_table.mirrors.types import Leaf, copied_field, copied_schema
from fermion_table.schema.schema import Field, PartitionField, TableSchema
from fermion_table.storage.store import AtomicStore

StepKind = Literal["append", "delete", "overwrite", "replace", "none"]
"""What a publication does to the copies; ``replace`` changes no rows."""


@dataclass(frozen=True, slots=True)
class Source:
    """The table and the branch that a mirror shows."""

    table_uuid: str
    branch: str


@dataclass(frozen=True, slots=True)
class Position:
    """The snapshot of the source that a mirror shows.

    snapshot_hash: None where the mirror does not say it any more.
    """

    source: Source
    snapshot_id: int
    snapshot_hash: str | None


@dataclass(frozen=True, slots=True)
class TargetState:
    """Where a mirror stands.

    position: None: nothing was published yet.
    copies: Names of the copies that it shows.
    schema_key: Of the source's schema that it has.
    detail: What the target itself needs for the next commit.
    """

    position: Position | None = None
    copies: frozenset[str] = frozenset()
    detail: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One commit of a mirror: it shows the next snapshot of the source.

    kind: What becomes of the copies.
    added, removed: Copies that it shows from now on, and names of those that it shows no more.
    """

    position: Position
    snapshot: Snapshot
    schema: TableSchema
    kind: StepKind
    added: Sequence[Copy]
    removed: Sequence[str]


class MirrorTarget(ABC):
    """A table of another format that shows a table of ours.

    kind, table: Its name, as users give it; one of its tables, for messages.
    by_name: Whether columns of files are found by name; else by field id.
    leaf: The types that it has.
    options: Names of further parameters, which are texts.
    data_folder: Where its data files lie, relative to the mirror.

    Parameters:
    store: Where its data files lie.
    """

    kind: str
    table: str
    by_name: bool
    leaf: Leaf
    options: tuple[str, ...] = ()
    data_folder = "data"

    def __init__(self, store: AtomicStore) -> None:
        self.store = store

    @property
    def where(self) -> str:
        """The mirror, for messages."""
        return f"{self.kind} mirror {self.store.location}"

    def path_of(self, name: str) -> str:
        """Where a copy lies, relative to the mirror."""
        return f"{self.data_folder}/{name}"

    def arrow_schema(self, schema: TableSchema) -> pa.Schema:
        """The columns as copies have them.

        Raises UnsupportedTypeError: The target has no such type; names mirror, column and type.
        """
        return copied_schema(schema, type(self).leaf, ids=not self.by_name, where=self.where)

    def check(self, schema: TableSchema) -> None:
        """Refuse a schema that the target can't have.

        Raises UnsupportedTypeError, InvalidArgumentError.
        """
        self.arrow_schema(schema)

    def form(self, field: Field) -> Hashable:
        """What a column looks like in a copy: copies of one form are read alike."""
        return _form(field, copied_field(field, type(self).leaf, ids=False).type, self.by_name)

    def partition_by(self, schema: TableSchema) -> tuple[PartitionField, ...]:
        """Those parts of the source's partitioning that the target can say."""
        return schema.partition_by

    def no_mirror_of(self, source: Source) -> InvalidArgumentError:
        """The error for a table of another source, or of somebody else, that lies there."""
        return InvalidArgumentError(
            f"{self.where}: there is {self.table} that is no mirror of this table's branch "
            f"{source.branch!r}: choose another location"
        )

    @abstractmethod
    def load(self, source: Source) -> TargetState:
        """Where the mirror stands.

        Raises CommitConflict: Somebody else has written to it.
        Raises InvalidArgumentError: It is no mirror of this source.
        """

    @abstractmethod
    def commit(self, state: TargetState, step: Step) -> TargetState | None:
        """Publish a step after a state; None: another writer was faster, and nothing was done."""


def _form(field: Field, dtype: pa.DataType, by_name: bool) -> Hashable:
    """The ids, types and (where they count) names of a field and those inside it."""
    own: Hashable = str(dtype) if not field.children else field.kind in ("struct", "map")
    inside = (dtype.key_type, dtype.item_type) if pa.types.is_map(dtype) else None
    children = tuple(
        _form(child, inside[at] if inside else dtype.field(at).type, by_name)
        for at, child in enumerate(field.children)
    )
    return field.id, field.name if by_name else "", own, children


def foreign_commit(where: str, what: str) -> CommitConflict:
    """The error for a mirror that somebody else has written to."""
    return CommitConflict(
        f"{where}: {what} was not written by the mirror: expected that nobody else writes to it. "
        "It shows what that writer left. To publish again, drop the mirror, delete its directory, "
        "and create it anew",
        mine="publish",
        theirs=what,
    )


def properties_of(position: Position, snapshot: Snapshot) -> Mapping[str, str]:
    """What the target's commit says of the snapshot that it shows."""
    return {
        TABLE: position.source.table_uuid,
        BRANCH: position.source.branch,
        SNAPSHOT_ID: str(position.snapshot_id),
        SNAPSHOT_HASH: str(position.snapshot_hash),
        "fermion.kind": snapshot.kind,
    }


def position_of(properties: Mapping[str, Any]) -> Position | None:
    """What a commit says of the snapshot that it shows; None: it is not one of a mirror."""
    if SNAPSHOT_ID not in properties:
        return None
    source = Source(str(properties.get(TABLE)), str(properties.get(BRANCH)))
    return Position(source, int(properties[SNAPSHOT_ID]), properties.get(SNAPSHOT_HASH))


TABLE = "fermion.table"
BRANCH = "fermion.branch"
SNAPSHOT_ID = "fermion.snapshot-id"
SNAPSHOT_HASH = "fermion.snapshot-hash"

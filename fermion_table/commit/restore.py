"""Going back: a new snapshot with the state, schema and settings of an earlier one."""

from __future__ import annotations

import contextlib

import msgspec

from fermion.errors import InvalidArgumentError
from fermion_table.commit.fast_forward import difference
from fermion_table.commit.publisher import Publisher
from fermion_table.commit.request import CommitMetadata, CommitRequest, NewSchema
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.metadata.references import create_tag, delete_tag
from fermion_table.metadata.schema_store import load_table_schema
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.schema.schema import TableSchema, encode_schema
from fermion_table.storage.paths import unique_name
from fermion_table.storage.store import AtomicStore

KEEP_MS = 24 * 3600 * 1000
"""How long a crashed restore keeps its target from expiring."""


def restore(
    publisher: Publisher, known: Snapshot, target: Snapshot, *, message: str | None = None
) -> Snapshot:
    """Make an earlier state the latest one. Row ids and sequence numbers come back with it.

    Parameters
    ----------
    publisher
        Of the branch.
    known
        A snapshot of the table.
    target
        The state that comes back; nothing after it is forgotten.
    message
        For the history; None says which snapshot came back.

    Returns
    -------
    Snapshot
        The new one, or the latest if it has that state already.

    Raises
    ------
    InvalidArgumentError
        The target's schema is another branch's.
    VersionNotFound
        The target has expired.
    """
    store = publisher.store
    text = message if message is not None else f"restore snapshot {target.id}"
    metadata = CommitMetadata(message=text)

    def plan(base: Snapshot) -> CommitRequest | None:
        changes = difference(
            live_entries(store, base, keep_unknown=True),
            live_entries(store, target, keep_unknown=True),
        )
        schema = _schema_of(publisher, base, target)
        if not (changes.added or changes.removed or schema):
            return None
        return CommitRequest(
            kind="restore",
            added=changes.added,
            removed=changes.removed,
            schema=schema,
            base=base,
            metadata=metadata,
            reader_features=target.reader_features,
            writer_features=target.writer_features,
        )

    # The tag is there before the target is known not to have expired: it can't any more.
    tag = create_tag(store, f"restore-{unique_name()}", target, message=text, keep_ms=KEEP_MS)
    try:
        return publisher.publish(known, plan, metadata).snapshot
    finally:
        with contextlib.suppress(OSError):  # it goes with time
            delete_tag(store, tag.name)


def _schema_of(publisher: Publisher, base: Snapshot, target: Snapshot) -> NewSchema | None:
    """The target's schema as the next version of the base's; None if they are alike."""
    store: AtomicStore = publisher.store
    current = load_table_schema(store, base.schema)
    known = {base.schema.hash, *(version.hash for version in current.ancestors)}
    if target.schema.hash not in known:
        raise InvalidArgumentError(
            f"{store.location}: snapshot {target.id} of branch {target.branch!r} has a schema that "
            f"branch {publisher.branch!r} never had; only fast_forward can bring it here"
        )
    wanted = load_table_schema(store, target.schema)

    def change(schema: TableSchema) -> TableSchema:
        return msgspec.structs.replace(
            wanted,
            id=schema.id,
            ancestors=schema.ancestors,
            last_field_id=max(schema.last_field_id, wanted.last_field_id),
            time_ms=schema.time_ms,
        )

    made = publisher.changed_schema(base, [change])
    return None if made is None else NewSchema(made.id, encode_schema(made))

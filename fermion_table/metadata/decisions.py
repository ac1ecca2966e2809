"""Decisions of transactions over several tables: objects of a warehouse, each created once.

Creating the decision ``committed`` is the commit of all the tables' snapshots at once. Whoever
waits for a transaction too long creates the decision ``aborted`` instead; the first one counts.
"""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from fermion.redaction import logger, redacted
from fermion_table.errors import CommitStateUnknown, CorruptMetadata, UnsupportedFeature
from fermion_table.metadata.snapshot import PartOfTransaction, Snapshot
from fermion_table.options import CommitOptions
from fermion_table.storage import json_codec
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.json_codec import Natural
from fermion_table.storage.location import open_store
from fermion_table.storage.paths import unique_name
from fermion_table.storage.store import (
    AtomicStore,
    CreateResult,
    access_of,
    in_time,
    unknown_reason,
)

_log = logger(__name__)

DECISION_FORMAT = "fermion-transaction"
DECISION_FORMAT_VERSION = 1
WAREHOUSE_PATH = "_catalog/transactions/warehouse.json"
"""The object that tells a warehouse from others."""
_DECISION_BYTES = 1_000
"""Estimated memory of a cached decision."""


class Participant(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that a transaction has committed.

    table_uuid, path: Of the table; where it lies, relative to the warehouse.
    branch, snapshot_id, hash: Of the snapshot.
    """

    table_uuid: str
    path: str
    branch: str
    snapshot_id: Natural
    hash: str


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a transaction.

    id: Of the transaction.
    state: What was decided.
    time_ms: When, for people: milliseconds since 1970 UTC.
    participants: Of a transaction that was committed.
    """

    id: str
    state: Literal["committed", "aborted"]
    time_ms: Natural
    participants: tuple[Participant, ...] = ()
    format: str = ""
    format_version: Natural = 0


class WarehouseIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What tells a warehouse from others: ``id`` has 32 hexadecimal digits."""

    id: str


def decision_path(transaction: str) -> str:
    """The object of a transaction's decision, relative to the warehouse."""
    return f"_catalog/transactions/{transaction}.json"


def warehouse_above(store: AtomicStore, above: int) -> AtomicStore:
    """The directory that lies so many above that of a table."""
    location = store.location.replace("\\", "/") if "://" not in store.location else store.location
    for _ in range(above):
        location = location.rpartition("/")[0] or "/"
    return open_store(
        location,
        storage_options=store.storage_options,
        durability=getattr(store, "durability", "full"),
        access=access_of(store),
    )


def warehouse_id(root: AtomicStore) -> str:
    """The identity of a warehouse, which gets one where it has none.

    Raises OSError: The storage's own; or it gives no answer.
    """
    for _ in range(CommitOptions().unknown_tries):
        found = _identity(root)
        if found is not None:
            return found
        made = json_codec.encode(WarehouseIdentity(id=unique_name()))
        root.create_if_absent(WAREHOUSE_PATH, made)
    raise OSError(f"{redacted(root.location)}: {WAREHOUSE_PATH}: {unknown_reason(root)}")


def decision_on(store: AtomicStore, snapshot: Snapshot) -> Decision | None:
    """What was decided about the transaction that a snapshot of a table is part of; None: nothing.

    Raises CorruptMetadata: The table does not lie in the warehouse any more; or the decision is of
        other snapshots.
    """
    part = snapshot.transaction
    assert part is not None
    found: Decision | None = shared_cache.get(f"decision {part.id}")
    if found is None:
        with in_time(store):
            root = warehouse_above(store, part.above)
            found = read_decision(root, part.id)
            if found is None:
                _refuse_moved(store, root, part)
                return None
        shared_cache.put(f"decision {part.id}", found, _DECISION_BYTES)
    if found.state == "committed" and snapshot.hash not in {p.hash for p in found.participants}:
        named = ", ".join(each.hash for each in found.participants[:3]) or "none"
        raise CorruptMetadata(
            decision_path(part.id), f"a participant of hash {snapshot.hash}", named
        )
    return found


def read_decision(root: AtomicStore, transaction: str) -> Decision | None:
    """The decision on a transaction, None if there is none.

    Raises CorruptMetadata, UnsupportedFeature, OSError.
    """
    path = decision_path(transaction)
    try:
        data = root.read(path)
    except FileNotFoundError:
        return None
    decision = json_codec.decode(data, Decision, path)
    if decision.format != DECISION_FORMAT or decision.id != transaction:
        expected = f"format {DECISION_FORMAT!r} and id {transaction}"
        raise CorruptMetadata(path, expected, f"{decision.format!r} and {decision.id!r}")
    if decision.format_version > DECISION_FORMAT_VERSION:
        raise UnsupportedFeature(
            f"{path}: version {decision.format_version} of decisions; this reader knows up to "
            f"{DECISION_FORMAT_VERSION}"
        )
    return decision


def decide(
    root: AtomicStore,
    decision: Decision,
    options: CommitOptions = CommitOptions(),  # noqa: B008 - immutable
) -> Decision:
    """Decide about a transaction, unless that was done: what counts comes back.

    Raises OSError: The storage's own: nothing was decided here.
    Raises CommitStateUnknown: No try got an answer.
    """
    path = decision_path(decision.id)
    decision = msgspec.structs.replace(
        decision, format=DECISION_FORMAT, format_version=DECISION_FORMAT_VERSION
    )
    data = json_codec.encode(decision)
    result = root.create_if_absent(path, data)
    if result is CreateResult.CREATED:
        return decision
    with in_time(root):
        for tried in range(1, options.unknown_tries + 1):
            try:
                found = read_decision(root, decision.id)
                if found is not None:
                    return found
                time.sleep(min(options.backoff_s_min * 2**tried, options.backoff_s_max))
                if root.create_if_absent(path, data) is CreateResult.CREATED:
                    return decision
            except OSError as error:  # proves nothing about the try before
                _log.warning("%s: %s: %s", root.location, path, error)
    raise CommitStateUnknown(
        f"{redacted(root.location)}: {path}: {unknown_reason(root)}: not known whether the "
        f"transaction is {decision.state}; commit it again with the same commit_user and "
        "commit_identifier"
    )


def _identity(root: AtomicStore) -> str | None:
    try:
        data = root.read(WAREHOUSE_PATH)
    except FileNotFoundError:
        return None
    return json_codec.decode(data, WarehouseIdentity, WAREHOUSE_PATH).id


def _refuse_moved(store: AtomicStore, root: AtomicStore, part: PartOfTransaction) -> None:
    """Refuse to take a decision for absent where it would not be."""
    found = _identity(root)
    if found != part.warehouse:
        raise CorruptMetadata(
            WAREHOUSE_PATH,
            f"warehouse {part.warehouse} at {redacted(root.location)}, {part.above} directories "
            f"above the table {redacted(store.location)}, for the decision of its transaction "
            f"{part.id}",
            f"{'none' if found is None else f'warehouse {found}'}: the table was moved or copied "
            "out of its warehouse after a transaction; move it back, commit to it once more, and "
            "move it then",
        )

"""Waiting for transactions over several tables whose snapshots stand at the end of a history.

Nobody builds on a snapshot that may count or not. A commit waits until the transaction is decided;
after a lease, by its own clock since it first saw the snapshot, it gives the transaction up.
"""

from __future__ import annotations

import contextlib
import time

from fermion.redaction import logger
from fermion_table.errors import CommitConflict, CommitStateUnknown
from fermion_table.metadata.decisions import Decision, decide, warehouse_above
from fermion_table.metadata.history import Newest, newest
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.moments import now_ms
from fermion_table.options import CommitOptions
from fermion_table.storage.store import AtomicStore

_log = logger(__name__)


def settled(
    store: AtomicStore,
    branch: str,
    end: Newest,
    options: CommitOptions,
) -> tuple[Newest, float]:
    """The end of a branch's history once it is decided, and when it was looked for.

    end: That was found, undecided.
    Raises CommitConflict: A transaction could be neither waited for nor given up.
    Raises TableNotFound, CorruptMetadata.
    """
    began, pause = time.monotonic(), options.backoff_s_min
    seen_at = began
    first_seen: dict[str, float] = {}
    while end.is_undecided:
        part = end.stored.transaction
        assert part is not None  # of others that is decided
        left = first_seen.setdefault(part.id, seen_at) + options.lease_s - time.monotonic()
        if left <= 0:
            with contextlib.suppress(CommitStateUnknown):  # it is asked for again
                give_up(store, end.stored)
        if time.monotonic() - began > options.timeout_s:
            raise CommitConflict(
                f"{store.location}: snapshot {end.stored.id} is part of transaction {part.id}, "
                f"which was not decided in {options.timeout_s:g} s",
                theirs=f"transaction {part.id}",
            )
        if left > 0:
            time.sleep(min(pause, left))
            pause = min(2 * pause, options.backoff_s_max)
        seen_at = time.monotonic()
        end = newest(store, branch=branch, start=end.stored.id)
    return end, seen_at


def give_up(store: AtomicStore, snapshot: Snapshot) -> None:
    """Decide that the transaction of a snapshot was given up, unless it is decided.

    Raises OSError, CommitStateUnknown: Whether it is decided is not known.
    """
    part = snapshot.transaction
    assert part is not None
    _log.warning("%s: snapshot %d: giving up transaction %s", store.location, snapshot.id, part.id)
    decide(
        warehouse_above(store, part.above),
        Decision(id=part.id, state="aborted", time_ms=now_ms()),
    )

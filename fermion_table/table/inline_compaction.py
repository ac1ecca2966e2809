"""Compaction by writers: after a commit, of the trees that it changed, or of the newest files.

It comes after the commit, and never fails it: what goes wrong is a warning. Where a tree of a
primary-key table has very many runs, the writer goes on once there are fewer: it compacts them, or
waits for a thread of its process that does.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Set as AbstractSet

import msgspec

from fermion.forks import Lock
from fermion_table.compaction.run import run_compaction
from fermion_table.compaction.small_files import compaction_tasks, plan_newest
from fermion_table.compaction.task import CompactionTask
from fermion_table.compaction.tree_changelog import PlannedOn
from fermion_table.compaction.tree_task import tree_tasks
from fermion_table.merging.primary_key import PrimaryKey, primary_key_of
from fermion_table.merging.sections import sorted_runs
from fermion_table.metadata.history import until_expiry
from fermion_table.metadata.manifest_store import added_entries, live_entries
from fermion_table.metadata.snapshot import PRIMARY_KEY, Snapshot
from fermion_table.moments import now_ms
from fermion_table.planning.filters import TableFilter
from fermion_table.planning.tree_plan import Tree, trees_of
from fermion_table.schema.properties import parse_properties
from fermion_table.schema.property_kinds import parse_size
from fermion_table.storage.store import in_time
from fermion_table.table.state import TableState

ROUNDS_MAX = 10
"""A writer that waits gives up after so many compactions that came too late."""
_LOCKS = tuple(Lock() for _ in range(64))
"""By location: of the threads of a process one compacts a table, others need not do the same."""


def finished(state: TableState) -> Snapshot:
    """The snapshot that was just committed; what it changed is compacted first.

    It is not, unless the table says that writers do so.
    """
    committed = state.snapshot
    compact_inline(state, committed)
    return committed


def published(state: TableState, committed: Snapshot, seen_at: float | None) -> None:
    """Move to a snapshot that was just committed, and then do the same."""
    state.move_to(committed, seen_at)
    compact_inline(state, committed)


def compact_inline(state: TableState, committed: Snapshot) -> None:
    """Compact what a commit has changed, if the table says that writers do so.

    Raises nothing but interrupts: the commit stands.
    """
    if committed.kind == "compact" or state.is_in_transaction:  # then nothing is committed yet
        return
    try:
        _ = state.schema
    except Exception:  # noqa: BLE001 (nobody knows whether the table asks for a compaction)
        return
    try:
        if PRIMARY_KEY in committed.reader_features:
            key = primary_key_of(state.schema)
            if key is not None and key.options.compaction.is_inline:
                _compact(state, key, committed)
        elif committed.deltas.files_added:
            _merge_newest(state, committed)
    except Exception as error:  # noqa: BLE001 (whatever it is, the rows are committed)
        message = (
            f"{state.location}: snapshot {committed.id} is committed, but the compaction after it "
            f"failed, and is left to later ones: {type(error).__name__}: {error}"
        )
        with contextlib.suppress(RuntimeWarning):  # the commit stands, even if warnings are errors
            warnings.warn(message, RuntimeWarning, stacklevel=4)


def planned_trees(
    state: TableState,
    key: PrimaryKey,
    *,
    target_bytes: int,
    is_full: bool = False,
    chosen: TableFilter | None = None,
    written: AbstractSet[Tree] | None = None,
) -> list[CompactionTask]:
    """What is to be compacted of the snapshot that is seen (see `tree_tasks`)."""
    with in_time(state.store), until_expiry(state.store, state.snapshot):
        return tree_tasks(
            PlannedOn(state.store, key, state.snapshot, state.schema, state.schemas),
            live_entries(state.store, state.snapshot, keep_unknown=True),
            target_bytes=target_bytes,
            now_ms=now_ms(),
            is_full=is_full,
            chosen=chosen,
            written=written,
        )


def target_bytes(state: TableState, target_size: int | str | None = None) -> int:
    """Bytes that a data file should have; None: the table says it."""
    if target_size is not None:
        return parse_size(target_size, "target_size")
    return parse_properties(state.schema.properties).target_file_bytes


def _compact(state: TableState, key: PrimaryKey, committed: Snapshot) -> None:
    """Compact once; again while a tree has too many runs and others came first."""
    entries = added_entries(state.store, committed)
    written = {(entry.partition, entry.bucket or 0) for entry in entries}
    lock = _LOCKS[hash(state.location) % len(_LOCKS)]
    own = copy.copy(state)  # other threads may move the table to their commits meanwhile
    for _ in range(ROUNDS_MAX):
        if lock.get().locked() and not _must_wait(own, key, written):
            return
        with lock.get():
            base = own.refresh()
            tasks = planned_trees(own, key, target_bytes=target_bytes(own), written=written)
            if not tasks:
                return
            result = run_compaction(tasks, base, store=own.store, branch=own.branch)
            state.move_to(own.refresh(), own.seen_at)
        if not result.groups_dropped or not _must_wait(own, key, written):
            return


def _merge_newest(state: TableState, committed: Snapshot) -> None:
    """Merge the newest files; gives up where another commit, or a thread, does the same.

    Entries in packed manifests, of which there are many, are left to `Table.compact`.
    """
    properties = parse_properties(state.schema.properties)
    files_min, target = properties.merged_files_min, properties.target_file_bytes
    if files_min is None:
        return
    lock = _LOCKS[hash(state.location) % len(_LOCKS)].get()
    if committed.totals.files < files_min or lock.locked():
        return
    with lock:
        own = copy.copy(state)  # other threads may move the table to their commits meanwhile
        own.move_to(committed)
        loose = tuple(each for each in committed.manifests if each.kind == "loose")
        others = [each.sequence[1] for each in committed.manifests if each.kind != "loose"]
        newest = msgspec.structs.replace(committed, manifests=loose)
        with in_time(own.store), until_expiry(own.store, committed):
            # A file that a deletion brought out of a packed manifest is older than others there.
            entries = [
                entry
                for entry in live_entries(own.store, newest)
                if entry.sequence_number > max(others, default=-1)
            ]
        tasks = compaction_tasks(
            plan_newest(entries, files_min=files_min, target_bytes=target),
            store=own.store,
            snapshot=committed,
            schemas=own.schemas,
            target_bytes=target,
        )
        if tasks:
            run_compaction(tasks, committed, store=own.store, branch=own.branch, threads=1)
            state.move_to(own.refresh(), own.seen_at)


def _must_wait(state: TableState, key: PrimaryKey, written: AbstractSet[Tree]) -> bool:
    """Whether one of some trees has so many runs that writers are to wait."""
    with in_time(state.store), until_expiry(state.store, state.snapshot):
        entries = live_entries(state.store, state.snapshot)
    trees = trees_of(entries, key)
    stop = key.options.compaction.stop_trigger
    return any(len(sorted_runs(trees.get(tree, ()))) >= stop for tree in written)

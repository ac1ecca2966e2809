"""Methods of `Table` that maintain it: compaction, expiry, orphan files, verification, repair."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fermion.arguments import flag, function, integer
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor
from fermion.typing import FilterLike
from fermion_table.argument_checks import check_bool, check_kind, check_kinds, check_texts
from fermion_table.checks import repair as repairing
from fermion_table.checks.data_files import verify_table
from fermion_table.checks.missing_files import LostDeletions
from fermion_table.checks.repair import Choice, RepairResult
from fermion_table.checks.verify import VerifyReport
from fermion_table.compaction import small_files
from fermion_table.compaction.run import commit_groups, run_compaction
from fermion_table.compaction.small_files import compaction_tasks
from fermion_table.compaction.task import (
    CompactionMessage,
    CompactionResult,
    CompactionTask,
    dead_blob_files,
)
from fermion_table.expiry import expire
from fermion_table.expiry.maintenance import MaintenanceResult
from fermion_table.merging.primary_key import primary_key_of
from fermion_table.metadata.history import latest
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.moments import limit_ms, now_ms
from fermion_table.planning.filters import TableFilter, table_filter
from fermion_table.schema.properties import parse_properties
from fermion_table.table.inline_compaction import planned_trees, target_bytes
from fermion_table.table.reading import scan
from fermion_table.table.state import HasState, TableState

if TYPE_CHECKING:
    from fermion_table.expiry import orphans
else:  # it loads fsspec, which compaction of local tables does not need
    orphans = LoadedWhenAskedFor("fermion_table.expiry.orphans")

MIN_INPUT_FILES = 2


def plan_compaction(
    self: HasState,
    *,
    filter: FilterLike | None = None,
    target_size: int | str | None = None,
    min_input_files: int = MIN_INPUT_FILES,
    sort_by: Sequence[str] | str | None = None,
    full: bool = False,
    column_files_max: int | None = None,
) -> list[CompactionTask]:
    """What `compact` would do with this snapshot, as tasks for `compaction.compact_group`.

    Each is a group of small files or, of a table with a primary key, a tree. Commit what becomes
    of them by `commit_compaction`.
    """
    state = self._state
    if sort_by is not None and not isinstance(sort_by, str):
        sort_by = check_texts(sort_by, "sort_by")
    min_input_files = integer(min_input_files, "min_input_files")
    full = flag(full, "full")
    if column_files_max is not None:
        column_files_max = integer(column_files_max, "column_files_max", minimum=0)
    target = target_bytes(state, target_size)
    key = primary_key_of(state.schema)
    if key is not None:
        given = {
            "sort_by": bool(sort_by),
            "min_input_files": min_input_files != MIN_INPUT_FILES,
            "column_files_max": column_files_max is not None,
        }
        if any(given.values()):
            name = next(each for each, is_given in given.items() if is_given)
            raise InvalidArgumentError(
                f"{name}: is for tables without a primary key; the files of {state.location} are "
                "sorted by key, and compacted by the number and size of their runs"
            )
        chosen = _of_partitions(state, filter)
        return planned_trees(state, key, target_bytes=target, is_full=full, chosen=chosen)
    if full:
        raise InvalidArgumentError(
            f"full=True: {state.location} has no primary key, so its files have no levels; "
            "compact() rewrites all small files"
        )
    if column_files_max is None:
        column_files_max = parse_properties(state.schema.properties).column_files_max
    entries, _ = scan(self, filter=filter).entries
    moved = dead_blob_files(entries) if filter is None else frozenset[str]()
    return compaction_tasks(
        small_files.plan_compaction(
            entries,
            target_bytes=target,
            min_input_files=min_input_files,
            is_sorting=bool(sort_by),
            column_files_max=column_files_max,
            moved_blobs=moved,
        ),
        store=state.store,
        snapshot=state.snapshot,
        schemas=state.schemas,
        target_bytes=target,
        sort_by=sort_by or (),
        moved_blobs=moved,
    )


def compact(
    self: HasState,
    *,
    filter: FilterLike | None = None,
    target_size: int | str | None = None,
    min_input_files: int = MIN_INPUT_FILES,
    sort_by: Sequence[str] | str | None = None,
    full: bool = False,
    column_files_max: int | None = None,
    max_groups_per_commit: int | None = None,
    dry_run: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CompactionResult:
    """Rewrite small files as larger ones; rows, their order and batches do not change.

    Of a table with a primary key sorted runs are merged, in each tree (the files of a partition and
    bucket) that has too many of them, and large files that overlap no others move to another level
    without being rewritten. What a scan shows does not change, except that expired rows go
    (``record_level.expire_time``), and that rows appear which the table shows only once they are
    compacted (``deletion_vectors.merge_on_read=false``).

    Parameters
    ----------
    filter
        Only files that may hold such rows; with a primary key it reads partition columns alone.
    target_size
        Of a file: bytes, or as in ``"256MB"``; None takes the table's property.
    min_input_files
        Fewer are left alone; not for tables with a primary key, which are compacted by the number
        and size of their runs.
    sort_by
        Columns to sort rows by, or ``["zorder(a, b)"]`` to cluster them by several alike. Big
        files take part too; rows move within groups of about four files. Not for tables with a
        primary key, whose files are sorted by it.
    full
        Of a table with a primary key: merge all runs of each tree into one, at its top level.
    column_files_max
        Data files that have more column files (see `add_columns_with`) are rewritten with all
        columns in them; None takes the table's property. 0 rewrites all that have any.
    max_groups_per_commit
        Publish progress after so many groups; None: one snapshot at the end.
    dry_run
        Only say what would be done.
    progress
        Called with the groups done and the groups in all.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the argument that is wrong, or not for this table.
    CommitStateUnknown
    """
    state = self._state
    state.check_writable()
    dry_run = flag(dry_run, "dry_run")
    function(progress, "progress")
    if max_groups_per_commit is not None:
        max_groups_per_commit = integer(max_groups_per_commit, "max_groups_per_commit", minimum=1)
    if threads is not None:
        threads = integer(threads, "threads", minimum=1)
    base = state.refresh()
    tasks = plan_compaction(
        self,
        filter=filter,
        target_size=target_size,
        min_input_files=min_input_files,
        sort_by=sort_by,
        full=full,
        column_files_max=column_files_max,
    )
    if dry_run:
        groups = [task.group for task in tasks]
        return CompactionResult(
            dry_run=True,
            groups=len(groups),
            files_upgraded=sum(len(task.upgraded) for task in tasks),
            files_before=sum(len(group.entries) for group in groups),
            bytes_before=sum(group.bytes for group in groups),
            rows=sum(group.rows for group in groups),
        )
    result = run_compaction(
        tasks,
        base,
        store=state.store,
        branch=state.branch,
        max_groups_per_commit=max_groups_per_commit,
        threads=threads,
        progress=progress,
    )
    state.refresh()
    return result


def commit_compaction(
    self: HasState, messages: Iterable[CompactionMessage], base: Snapshot
) -> CompactionResult:
    """Publish groups that tasks have rewritten.

    Parameters
    ----------
    base
        The snapshot that `plan_compaction` planned on.

    Raises
    ------
    InvalidArgumentError
        Messages that were committed before, are there twice, or were planned on another snapshot;
        nothing was published.
    CommitStateUnknown
    """
    state = self._state
    state.check_writable()
    listed = check_kinds(messages, CompactionMessage, "messages")
    check_kind(base, Snapshot, "base")
    for message in listed:
        if message.snapshot_id not in (None, base.id):
            raise InvalidArgumentError(
                f"base: expected snapshot {message.snapshot_id}, which the messages were planned "
                f"on, found snapshot {base.id}"
            )
    result = CompactionResult(groups=len(listed))
    commit_groups(listed, base, store=state.store, branch=state.branch, result=result)
    state.refresh()
    return result


def expire_snapshots(
    self: HasState,
    *,
    older_than: datetime | timedelta | str | None = None,
    retain_last: int | None = None,
    dry_run: bool = False,
) -> MaintenanceResult:
    """Expire old snapshots of this branch: delete them, and data that only they use.

    What a kept snapshot of any branch, a tag or a clone refers to stays, and so do the
    snapshot that a branch left, and the one that its parent was moved to last. The snapshot
    file is deleted an hour after its data, so that a commit under way can't take its id.
    What a consumer still has to read stays, too (`Table.consumers`).
    Changelogs stay longer if the table's ``changelog.num_retained`` or
    ``changelog.time_retained`` say so.
    Several processes may expire snapshots at once.

    Parameters
    ----------
    older_than
        A datetime (UTC without a zone), or a timedelta before now, such as ``"7d"``; None: 7
        days.
    retain_last
        This many stay however old they are, at least 1; None: 10.
    dry_run
        Only say what would be deleted.

    Raises
    ------
    TypeError, InvalidArgumentError
        A limit of another type, or ``retain_last`` below 1.
    CorruptMetadata, OSError
        Something kept can't be read; nothing was deleted.
    UnsupportedFeature
        The table needs a newer writer.
    """
    state = self._state
    dry_run = check_bool(dry_run, "dry_run")
    now = now_ms()
    key = primary_key_of(state.schema)
    changelogs = None
    consumer_age_ms = parse_properties(state.schema.properties).consumer_age_ms
    if key is not None:
        options = key.options
        changelogs = expire.ChangelogRetention(
            options.changelogs_retained, options.changelog_age_ms
        )
    return expire.expire_snapshots(
        state.store,
        branch=state.branch,
        older_than_ms=limit_ms(older_than, now_ms=now),
        retain_last=(
            None if retain_last is None else integer(retain_last, "retain_last", minimum=1)
        ),
        changelogs=changelogs,
        dry_run=dry_run,
        now=now,
        consumer_age_ms=consumer_age_ms,
    )


def remove_orphan_files(
    self: HasState, *, older_than: datetime | timedelta | str | None = None, dry_run: bool = False
) -> MaintenanceResult:
    """Delete orphan files: files of failed writers that no snapshot refers to.

    Parameters
    ----------
    older_than
        Only files last written before this datetime, or longer ago than this timedelta (or text
        such as ``"3d"``); None:
        3 days. Younger ones may belong to a writer that has not committed yet.
    dry_run
        Only say what would be deleted.

    Raises
    ------
    TypeError
        A limit of another type.
    CorruptMetadata, OSError
        Something referred to can't be read; nothing was deleted.
    UnsupportedFeature
        The table needs a newer writer.
    """
    state = self._state
    dry_run = check_bool(dry_run, "dry_run")
    now = now_ms()
    return orphans.remove_orphan_files(
        state.store,
        older_than_ms=limit_ms(older_than, now_ms=now),
        dry_run=dry_run,
        now=now,
    )


def verify(self: HasState, *, data: bool = False) -> VerifyReport:
    """Check every branch and tag: hashes, parents, files; with ``data`` checksums and nulls.

    Parameters
    ----------
    data
        Without it data files and deletion vectors are measured, not opened: each must be there
        and have its size, which costs a request a file at most. A file that another one of the
        same size has replaced is found with ``data`` only: it opens every data file, compares
        its ``file_id`` and rows with its entry, and reads all of it. Of the newest snapshot of
        each branch it then reads NOT NULL columns of which metadata do not prove that no row is
        null.
    """
    return verify_table(self._state.store, data=flag(data, "data"))


def _of_partitions(state: TableState, filter: FilterLike | None) -> TableFilter | None:
    """A filter of partition columns alone."""
    chosen = table_filter(filter, state.schema, where=state.location)
    sources = [state.schema.by_id[each.source_id].name for each in state.schema.partition_by]
    if chosen is not None:
        others = sorted({path[0] for path in chosen.paths}.difference(sources))
        if others or not chosen.paths:
            named = f"column {others[0]!r}" if others else "no column"
            raise InvalidArgumentError(
                f"filter: reads {named}; trees of a table with a primary key are chosen by "
                f"partition: expected its partition columns, {sources}"
            )
    return chosen


def repair(
    self: HasState,
    *,
    dry_run: bool = False,
    leave_out_missing: bool = False,
    lost_deletions: LostDeletions | None = None,
) -> RepairResult:
    """Repair the table from its own files, while nobody else writes to it (see `repair_table`).

    Parameters
    ----------
    dry_run
        Only say what would be done.
    leave_out_missing, lost_deletions
        Whether to give up files that are missing, and deletion vectors: see `repair_table`.

    Returns
    -------
    RepairResult
        What was done, and the problems that are left.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the argument that is wrong.
    CommitConflict, CommitStateUnknown, UnsupportedFeature, OSError
    """
    state = self._state
    choice = Choice.checked(dry_run, leave_out_missing, lost_deletions)
    done = repairing.repair(state.store, choice)
    if not done.dry_run and state.version_opened is None:
        state.move_to(latest(state.store, branch=state.branch))
    return done

"""The side of a table that compacts it: rewrites small files as few, or sorts their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fermion.arguments import flag, function, integer
from fermion_table.argument_checks import check_kind, check_kinds, check_texts
from fermion_table.compaction.run import commit_groups, run_compaction
from fermion_table.compaction.small_files import (
    CompactionMessage,
    CompactionResult,
    CompactionTask,
    compaction_tasks,
    plan_compaction,
)
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.schema.properties import parse_properties, parse_size
from fermion_table.table.changes import TableChanges


class TableCompaction(TableChanges):
    """A table at one of its snapshots that can be compacted."""

    def plan_compaction(
        self,
        *,
        filter: Any = None,
        target_size: int | str | None = None,
        min_input_files: int = 2,
        sort_by: Sequence[str] | str | None = None,
    ) -> list[CompactionTask]:
        """The groups of small files of this snapshot, as tasks for `compaction.compact_group`."""
        if sort_by is not None and not isinstance(sort_by, str):
            sort_by = check_texts(sort_by, "sort_by")
        min_input_files = integer(min_input_files, "min_input_files")
        target = self._target_bytes(target_size)
        entries, _ = self.scan(filter=filter).entries
        return compaction_tasks(
            plan_compaction(
                entries,
                target_bytes=target,
                min_input_files=min_input_files,
                is_sorting=bool(sort_by),
            ),
            store=self._store,
            schema=self.schema,
            schemas=self._schemas,
            target_bytes=target,
            sort_by=sort_by or (),
        )

    def _target_bytes(self, target_size: int | str | None) -> int:
        if target_size is not None:
            return parse_size(target_size, "target_size")
        return parse_properties(self.schema.properties).target_file_bytes

    def compact(
        self,
        *,
        filter: Any = None,
        target_size: int | str | None = None,
        min_input_files: int = 2,
        sort_by: Sequence[str] | str | None = None,
        max_groups_per_commit: int | None = None,
        dry_run: bool = False,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> CompactionResult:
        """Rewrite small files as few; rows, their order and batches stay as they are.

        Parameters
        ----------
        filter
            Only files that may hold such rows.
        target_size
            Of a file: bytes, or as in ``"256MB"``; None takes the table's property.
        min_input_files
            Fewer are left alone.
        sort_by
            Columns to sort rows by, or ``["zorder(a, b)"]`` to cluster them by several alike. Big
            files take part too; rows move within groups of about four files.
        max_groups_per_commit
            Publish progress after so many groups; None: one snapshot at the end.
        dry_run
            Only say what would be done.
        progress
            Called with the groups done and the groups in all.
        """
        self._check_writable()
        dry_run = flag(dry_run, "dry_run")
        function(progress, "progress")
        if max_groups_per_commit is not None:
            max_groups_per_commit = integer(
                max_groups_per_commit, "max_groups_per_commit", minimum=1
            )
        if threads is not None:
            threads = integer(threads, "threads", minimum=1)
        base = self.refresh()
        tasks = self.plan_compaction(
            filter=filter,
            target_size=target_size,
            min_input_files=min_input_files,
            sort_by=sort_by,
        )
        if dry_run:
            groups = [task.group for task in tasks]
            return CompactionResult(
                dry_run=True,
                groups=len(groups),
                files_before=sum(len(group.entries) for group in groups),
                bytes_before=sum(group.bytes for group in groups),
                rows=sum(group.rows for group in groups),
            )
        result = run_compaction(
            tasks,
            base,
            store=self._store,
            branch=self._branch,
            max_groups_per_commit=max_groups_per_commit,
            threads=threads,
            progress=progress,
        )
        self.refresh()
        return result

    def commit_compaction(
        self, messages: Iterable[CompactionMessage], base: Snapshot
    ) -> CompactionResult:
        """Publish groups that tasks have rewritten.

        Parameters
        ----------
        base
            The snapshot that `plan_compaction` planned on.
        """
        self._check_writable()
        listed = check_kinds(messages, CompactionMessage, "messages")
        check_kind(base, Snapshot, "base")
        result = CompactionResult(groups=len(listed))
        commit_groups(listed, base, store=self._store, branch=self._branch, result=result)
        self.refresh()
        return result

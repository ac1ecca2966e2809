"""Carries out a compaction: groups on threads, and commits that publish what is done."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from fermion import telemetry
from fermion_table.commit.commit import commit
from fermion_table.commit.committed_files import delete_unpublished
from fermion_table.commit.request import CommitMetadata, CommitRequest, WrittenFiles
from fermion_table.compaction.task import (
    CompactionMessage,
    CompactionResult,
    CompactionTask,
    compact_group,
)
from fermion_table.errors import CommitConflict
from fermion_table.metadata.manifest_store import removed_entries
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.paths import MAIN
from fermion_table.storage.store import AtomicStore

Progress = Callable[[int, int], None]
"""Called with the groups done and the groups in all."""


def run_compaction(
    tasks: Sequence[CompactionTask],
    base: Snapshot,
    *,
    store: AtomicStore,
    branch: str = MAIN,
    max_groups_per_commit: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> CompactionResult:
    """Rewrite all groups, and commit them as they come.

    base: The snapshot that the groups were planned on.
    max_groups_per_commit: Publishes after so many groups; None: all at once, at the end.
    threads: Groups rewritten side by side; None takes the number of processors.
    """
    watching = telemetry.watching
    left = sum(task.group.bytes for task in tasks)
    started = time.monotonic()
    result = CompactionResult(groups=len(tasks))
    waiting: list[CompactionMessage] = []

    def publish() -> None:
        commit_groups(waiting, base, store=store, branch=branch, result=result)
        waiting.clear()

    with (
        contextlib.nullcontext()
        if watching is None
        else watching.operation("fermion.compaction", store.location, branch=branch),
        OwnedFiles(store) as owned,
        _rewriting(tasks, threads or os.cpu_count() or 1, owned) as rewritten,
    ):
        for done, message in enumerate(rewritten, start=1):
            owned.take(message.paths)
            waiting.append(message)
            if watching is not None:
                watching.debt(store.location, left)
                left -= sum(entry.bytes for entry in message.removed)
            if max_groups_per_commit is not None and len(waiting) >= max_groups_per_commit:
                publish()
            if progress is not None:
                progress(done, len(tasks))
        if waiting:
            publish()
        if watching is not None:
            watching.debt(store.location, max(left, 0))
    result.seconds = time.monotonic() - started
    return result


@contextlib.contextmanager
def _rewriting(
    tasks: Sequence[CompactionTask], threads: int, owned: OwnedFiles
) -> Iterator[Iterator[CompactionMessage]]:
    """The groups rewritten, as they come; after an error the others' files are owned, too."""
    if threads == 1 or len(tasks) < 2:
        yield map(compact_group, tasks)
        return
    with ThreadPoolExecutor(threads) as executor:
        futures = {executor.submit(compact_group, task): task for task in tasks}
        left = set(futures)

        def rewritten() -> Iterator[CompactionMessage]:
            for future in as_completed(futures):
                message = future.result()
                left.discard(future)
                yield message

        try:
            yield rewritten()
        except BaseException:
            running = [future for future in left if not future.cancel()]
            for future in running:
                if future.exception() is None:
                    owned.take(future.result().paths)
            raise


def commit_groups(
    messages: Iterable[CompactionMessage],
    base: Snapshot,
    *,
    store: AtomicStore,
    result: CompactionResult,
    branch: str = MAIN,
) -> Snapshot | None:
    """Publish rewritten groups as one snapshot; add to `result` what became of them.

    Groups whose inputs another commit removed are left out, and their new files deleted.

    base: The snapshot that the groups were planned on.
    Returns: The snapshot; None if every group was left out, or had nothing to be rewritten.
    Raises InvalidArgumentError: A message was committed before, or is there twice; nothing was
        published.
    """
    listed = [each for each in messages if each.removed]  # others found nothing to rewrite
    if not listed:
        return None
    new = [entry for message in listed for entry in message.written]
    paths = frozenset(path for message in listed for path in message.paths)
    files = frozenset(entry.file for entry in new if not entry.is_changelog)
    written = WrittenFiles(files=files, beside=paths - files, since=base.id, branch=branch)
    request = CommitRequest(
        kind="compact",
        groups=[message.file_group() for message in listed],
        base=base,
        written=written,
        unsure=paths,
        metadata=CommitMetadata(
            message=f"compact {sum(len(message.removed) for message in listed)} files"
        ),
    )
    owned = OwnedFiles(store)
    try:
        snapshot = commit(store, request, branch=branch)
    except CommitConflict:
        owned.take(paths)
        delete_unpublished(owned, written, branch)
        result.groups_dropped += len(listed)
        return None
    replaced = {entry.file for entry in removed_entries(store, snapshot)}
    for message in listed:
        if message.removed[0].file not in replaced:
            owned.take(message.paths)
            result.groups_dropped += 1
            continue
        _count(result, message)
    owned.delete()
    result.retries += snapshot.effort.retries
    result.snapshots.append(snapshot.id)
    return snapshot


def _count(result: CompactionResult, message: CompactionMessage) -> None:
    """Add a group that was committed."""
    before = message.rewritten
    after = [entry for entry in message.written if not entry.is_changelog]
    result.files_before += len(before)
    result.files_after += len(after)
    result.bytes_before += sum(entry.bytes for entry in before)
    result.bytes_after += sum(entry.size for entry in after)
    result.files_upgraded += message.upgraded
    result.rows += sum(entry.rows for entry in after)

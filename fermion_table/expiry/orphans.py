"""Removing orphan files: those that crashed or lost writers left, and nothing refers to."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Container, Iterable, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from fermion.redaction import logger
from fermion_table.errors import TableNotFound
from fermion_table.expiry.maintenance import (
    ORPHAN_DIRECTORIES,
    MaintenanceResult,
    despite_expiry,
    is_data,
)
from fermion_table.expiry.reachable import live_objects
from fermion_table.metadata import pointers
from fermion_table.metadata.file_columns import PATHS, path_table
from fermion_table.metadata.history import table_exists
from fermion_table.metadata.references import list_branches
from fermion_table.moments import now_ms
from fermion_table.options import ORPHAN_MS_DEFAULT
from fermion_table.storage import owned_files
from fermion_table.storage.fsspec import FsspecStore
from fermion_table.storage.paths import (
    BRANCH_DIRECTORY,
    EXPIRED_DIRECTORY,
    MAIN,
    TAG_DIRECTORY,
    final_path,
    is_made_by_writers,
    is_temporary,
    snapshot_directory,
)
from fermion_table.storage.store import AtomicStore, StoredObject, UnfinishedUpload

HELD_MAX = 500_000
"""Files of a listing that are compared with the live ones at once. More of them are compared part
by part, and all manifests are read for each part."""
BATCH = 32_768
"""Files of a listing that are objects at once: a million would take 220 MB."""
_log = logger(__name__)


def plan_orphans(
    listing: Iterable[StoredObject], *, live: Container[str], older_than_ms: int
) -> list[StoredObject]:
    """The objects that writers have made, nothing refers to, and no running writer can own.

    An object without a time is left alone, and so is what has another name than writers give.
    """
    return [
        item
        for item in listing
        if is_made_by_writers(item.path)
        and item.path not in live
        and item.modified_ms is not None
        and item.modified_ms < older_than_ms
    ]


def remove_orphan_files(
    store: AtomicStore,
    *,
    older_than_ms: int | None = None,
    dry_run: bool = False,
    now: int | None = None,
) -> MaintenanceResult:
    """Delete files of the table's directory that nothing refers to.

    Files that crashed or lost writers left behind, known by their place and unique name. Snapshot
    files, tags, branches and pointer files are never touched, nor are files under other names, nor
    is anything younger than 3 days, nor what a writer, a message or a transaction of this process
    holds. On S3, uploads of such files that were begun before that and
    never completed are aborted, if they may be listed; they count as files of no bytes.

    older_than_ms: Only files last written before this time go; None for 3 days ago.
    dry_run: Only say what would go.
    now: Milliseconds since 1970 UTC; None takes the clock.
    Raises TableNotFound: No table here: nothing in the directory can be told from an orphan.
    Raises CorruptMetadata, OSError: Something referred to can't be read; nothing was deleted.
    Raises UnsupportedFeature: The table needs a newer writer.
    """
    if not table_exists(store):
        raise TableNotFound(f"{store.location}: no table here (no snapshot)")
    began = time.monotonic()
    moment = now_ms() if now is None else now
    limit = moment - ORPHAN_MS_DEFAULT if older_than_ms is None else older_than_ms
    temporary = snapshot_directory(), BRANCH_DIRECTORY, TAG_DIRECTORY, EXPIRED_DIRECTORY
    listing = (
        item
        for directory in (*ORPHAN_DIRECTORIES, *temporary)
        for item in store.list(directory)
        if directory not in temporary or is_temporary(item.path)
    )
    if not dry_run:
        for name in (MAIN, *(left.name for left in list_branches(store))):
            pointers.check_marks(store, 0, name)
            pointers.follow_markers(store, name)
    retries = 0

    def not_live(old: pa.Table) -> pa.Table:
        nonlocal retries
        in_use = [_in_use(chunk.to_pylist()) for chunk in old["path"].chunks]
        find = partial(live_objects, store, now=moment, asked=old["path"])
        live, tried = despite_expiry(store, find)
        retries += tried
        return old.filter(live.lacks(old["path"], set().union(*in_use)))

    # What may go by its name and age alone: of the others nothing is held in memory. The listing
    # first: whatever a commit publishes after it is live, or too young to be in it.
    found = [not_live(old) for old in _held(listing, limit)]
    orphans = pa.concat_tables(found)
    if len(found) > 1:  # rounds take long, and a slow commit may have published some meanwhile
        orphans = not_live(orphans)
    going = orphans["path"].to_pylist()
    uploads = _left_uploads(store, limit)
    if not dry_run:
        for path in going:
            store.delete(path)
        if isinstance(store, FsspecStore):
            for upload in uploads:
                store.abort_upload(upload)
    paths = sorted([*going, *(upload.path for upload in uploads)])
    return MaintenanceResult(
        files=sum(is_data(path) for path in paths),
        objects=sum(not is_data(path) for path in paths),
        bytes=pc.sum(orphans["size"]).as_py() or 0,
        paths=tuple(paths),
        dry_run=dry_run,
        retries=retries,
        seconds=time.monotonic() - began,
    )


def _held(listing: Iterable[StoredObject], limit_ms: int) -> Iterator[pa.Table]:
    """What may go of a listing, as `PATHS`: one table, or several where there is much."""
    remaining, tables, held = iter(listing), [PATHS.empty_table()], 0
    while some := list(itertools.islice(remaining, BATCH)):
        if held >= HELD_MAX:
            yield pa.concat_tables(tables)
            tables, held = [], 0
        old = plan_orphans(some, live=(), older_than_ms=limit_ms)
        tables.append(path_table((item.path, item.size) for item in old))
        held += len(old)
    yield pa.concat_tables(tables)


def _in_use(paths: Collection[str]) -> set[str]:
    """Those of some files that somebody in this process owns, or is writing."""
    owned = owned_files.owned(map(final_path, paths))
    return {path for path in paths if final_path(path) in owned} if owned else owned


def _left_uploads(store: AtomicStore, limit_ms: int) -> list[UnfinishedUpload]:
    """Uploads of files that writers begin to write, and began before a time."""
    if not isinstance(store, FsspecStore):
        return []
    try:
        return [
            upload
            for upload in store.unfinished_uploads()
            if is_made_by_writers(upload.path)
            and upload.begun_ms < limit_ms
            and not _in_use([upload.path])
        ]
    except OSError as error:  # to list them takes a right of its own, and not every server can
        _log.warning("%s: uploads that were not completed stay: %s", store.location, error)
        return []

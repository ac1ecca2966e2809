"""Which files `fermion table import` has read: told by the snapshots that hold their rows.

The property `PROPERTY` of such a snapshot names its files and all that imports before it had read,
so that files and rows are remembered in one commit, and the newest of these snapshots is enough.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.errors import CommitConflict
from fermion_table.metadata.history import walk
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.storage.store import AtomicStore
from fermion_table.table.table import Table

PROPERTY = "fermion.import.files"
"""``{"up_to": id, "files": {digest of a path: digest of its version}}``: every file that imports up
to that snapshot had read, and those of this one."""
FILES_MAX = 50_000
"""Files that are remembered: 2 MB in each snapshot of an import."""


@dataclass(frozen=True, slots=True)
class ImportedFiles:
    """What imports up to a snapshot have read.

    up_to: The snapshot's id.
    files: Digests of the files' versions by those of their paths.
    """

    up_to: int
    files: Mapping[str, str]

    @classmethod
    def of(cls, table: Table, *, may_be_lost: bool = False) -> ImportedFiles:
        """What imports into a table have read, up to the snapshot that it shows.

        may_be_lost: Nothing has been read where that is not known any more.
        Raises InvalidArgumentError: No import is left in the history, of which a part has expired.
        """
        files, lost = _remembered(table.store, table.branch, table.snapshot)
        if lost and not may_be_lost:
            raise InvalidArgumentError(
                f"{table.location}: which files were imported is not known, as snapshots before "
                f"{lost} have expired; --again imports all files, and remembers them"
            )
        return cls(table.snapshot.id, files)

    def followed_by(
        self,
        versions: Mapping[str, str],
        store: AtomicStore,
        branch: str,
        base: Snapshot,
        *,
        again: bool = False,
    ) -> dict[str, str]:
        """What a snapshot with the rows of more files has to say, if it follows another one.

        again: Whether the files may have been read by another import.
        Raises CommitConflict: Another import has read one of the files meanwhile, or that is not
            known any more.
        Raises InvalidArgumentError: They are too many to be remembered.
        """
        files, lost = _remembered(store, branch, base, self.up_to)
        read = [path for path in versions if _digest(path, 8) in files]
        if (read or lost) and not again:
            raise CommitConflict(
                f"{store.location}: another import has read {read[0] if read else 'files'} since "
                f"snapshot {self.up_to}",
                mine="import",
                theirs=f"import (up to snapshot {base.id})",
            )
        return ImportedFiles(base.id, {**self.files, **files}).properties(versions)

    def is_new(self, path: str) -> bool:
        """Whether no file of this name has been read."""
        return _digest(path, 8) not in self.files

    def is_changed(self, path: str, version: str) -> bool:
        """Whether a file has been read whose content was another one."""
        return self.files.get(_digest(path, 8)) not in (None, _digest(version, 4))

    def properties(self, versions: Mapping[str, str]) -> dict[str, str]:
        """What a snapshot with the rows of more files has to say.

        Raises InvalidArgumentError: They are too many to be remembered.
        """
        more = {_digest(path, 8): _digest(version, 4) for path, version in versions.items()}
        files = {**self.files, **more}
        if len(files) > FILES_MAX:
            raise InvalidArgumentError(
                f"expected at most {FILES_MAX:,} imported files to remember, found {len(files):,}; "
                "Table.append takes files without remembering them"
            )
        text = json.dumps({"up_to": self.up_to, "files": files}, separators=(",", ":"))
        return {PROPERTY: text}


def _remembered(
    store: AtomicStore, branch: str, newest: Snapshot, known: int | None = None
) -> tuple[dict[str, str], int]:
    """Files that imports have read up to a snapshot; of those since a known one, at least these.

    With it the earliest snapshot that is left, if what came before it is missing, else 0.
    """
    files: dict[str, str] = {}
    earliest, stop = newest.id, known
    for snapshot in walk(store, newest, branch=branch):
        if stop is not None and snapshot.id <= stop:
            return files, 0  # a later import knew of it
        earliest = snapshot.id
        said = snapshot.properties.get(PROPERTY)
        if said is not None:
            found = json.loads(said)
            files = {**found["files"], **files}
            stop = found["up_to"] if stop is None else stop
    return files, earliest if known is not None or stop is None else 0


def identifier_of(versions: Mapping[str, str]) -> str:
    """What identifies the import of some files, so that two at once make one commit."""
    return _digest(json.dumps(sorted(versions.items())), 16)


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=size).hexdigest()

"""Which commits may follow which: the conflict matrix, as a pure function.

Mine is the row, the commit that won is the column::

                 append     overwrite   delete/upsert  compact     schema
    append       ok         ok          ok             ok          ok if readable, else fail
    overwrite    redo*      redo*       redo*          redo*       redo
    delete       redo+      redo*       redo if file   redo if     redo unless readable
                                        shared, or +   file shared
    compact      ok         drop        drop           drop        ok
    schema       ok+        ok+         ok+            ok          redo

``*`` only where partitions overlap; ``+`` only if a file that was added may matter to what I
decided; ``drop`` leaves out the groups that share a file. Upsert behaves like delete, restore
like an overwrite of everything. A commit that also changes the schema stands in both its own
column and that of schema, and takes the worst verdict. A group of a tree is left out whenever runs
of the tree were replaced or put back, whether or not files are shared. After a restore that
changes the schema a compaction drops all of its groups: its files may lack columns that came back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fermion.exports import dataclass
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import Kind
from fermion_table.schema.schema import SchemaReference

Partitions = frozenset[tuple[Any, ...]]
Tree = tuple[tuple[Any, ...], int]
"""Partition values, as JSON values, and bucket."""


@dataclass(frozen=True, slots=True)
class Ok:
    """My commit may follow theirs.

    dropped: Groups of my compaction that must be left out, by index.
    """

    dropped: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Redo:
    """My operation has to be computed again on top of theirs."""

    reason: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    """My operation can't be carried out any more."""

    reason: str
    files: tuple[str, ...] = ()


Verdict = Ok | Redo | Fail


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """A commit that came first.

    partitions: Partitions it touched, None when they are too many to name.
    trees: Trees whose runs it replaced or put back; new runs at level 0 alone do not count.
    schema: The schema it brought, None if it kept its parent's.
    is_known: Whether its snapshot could be read. One that has expired counts as a restore of
        everything: nobody can say which files it added, removed, or left with another deletion
        vector.
    """

    snapshot_id: int
    kind: Kind
    partitions: Partitions | None = None
    added: Sequence[Entry] = ()
    removed: frozenset[str] = frozenset()
    trees: frozenset[Tree] = frozenset()
    schema: SchemaReference | None = None
    is_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Mine:
    """The commit that found another one's snapshot file, and wants to create the next.

    scope: Partitions that an overwrite or delete was decided on, None for all.
    removed: Files it removes, or rests on as if it did.
    groups: Files that each group of a compaction removes.
    trees: The tree that each of them is of, None for files of an append table; as many as groups,
        or none at all.
    depends_on: Whether a file that another commit added could change what was decided; None: an
        overwrite or delete depends on every file in its scope, an append or a schema change on
        none.
    accepts_schema: Why files written for the schema I know can't live under another one, None if
        they can. Without the function a changed schema means redo.
    """

    kind: Kind
    scope: Partitions | None = None
    removed: frozenset[str] = frozenset()
    groups: Sequence[frozenset[str]] = ()
    trees: Sequence[Tree | None] = ()
    changes_schema: bool = False
    depends_on: Callable[[Entry], bool] | None = None
    accepts_schema: Callable[[SchemaReference], str | None] | None = None


def conflict(mine: Mine, theirs: Theirs) -> Verdict:
    """Decide whether my commit may follow theirs."""
    verdicts = [_ROWS[mine.kind](mine, theirs)]
    if theirs.schema is not None:
        verdicts.append(_against_schema(mine, theirs.schema))
    if mine.changes_schema and mine.kind != "schema":
        verdicts.append(_schema(mine, theirs))
    return _worst(verdicts)


def needs_files(mine: Mine) -> bool:
    """Whether `conflict` looks at files at all (an append's entries are never opened)."""
    return mine.kind != "append" or mine.depends_on is not None


def _append(mine: Mine, theirs: Theirs) -> Verdict:
    return Ok() if mine.depends_on is None else _redo_if_matters(mine, theirs)


def _overwrite(mine: Mine, theirs: Theirs) -> Verdict:
    if theirs.kind == "schema":
        return Ok()
    if not _overlap(mine, theirs):
        return Ok()
    if theirs.kind == "append" and mine.depends_on is not None:
        return _redo_if_matters(mine, theirs)
    return Redo(f"snapshot {theirs.snapshot_id} ({theirs.kind}) changed what it replaces")


def _delete(mine: Mine, theirs: Theirs) -> Verdict:
    shared = tuple(sorted(mine.removed & theirs.removed))
    if shared:
        return Redo(f"snapshot {theirs.snapshot_id} ({theirs.kind}) changed the same file", shared)
    if theirs.kind in ("overwrite", "restore", "create"):
        return _overwrite(mine, theirs)
    is_by_key = any(entry.bucket is not None for entry in theirs.added)
    if theirs.kind in ("append", "upsert") or (theirs.kind == "delete" and is_by_key):
        return _redo_if_matters(mine, theirs)
    return Ok()


def _compact(mine: Mine, theirs: Theirs) -> Verdict:
    is_other = not theirs.is_known or (theirs.kind == "restore" and theirs.schema is not None)
    trees = mine.trees or [None] * len(mine.groups)
    dropped = [
        index
        for index, (files, tree) in enumerate(zip(mine.groups, trees, strict=True))
        if is_other or files & theirs.removed or tree in theirs.trees
    ]
    if mine.groups:
        return Ok(frozenset(dropped))
    shared = tuple(sorted(mine.removed if is_other else mine.removed & theirs.removed))
    if shared:
        return Fail(f"snapshot {theirs.snapshot_id} ({theirs.kind}) removed its inputs", shared)
    return Ok()


def _schema(mine: Mine, theirs: Theirs) -> Verdict:
    if mine.depends_on is None or theirs.kind == "compact":
        return Ok()
    return _redo_if_matters(mine, theirs)


def _against_schema(mine: Mine, schema: SchemaReference) -> Verdict:
    if mine.kind == "compact":
        return Ok()
    if mine.changes_schema or mine.kind in ("schema", "overwrite", "restore", "create"):
        return Redo(f"the schema is now {schema.id}")
    if mine.accepts_schema is None:
        return Redo(f"the schema is now {schema.id}")
    reason = mine.accepts_schema(schema)
    if reason is None:
        return Ok()
    return Fail(reason) if mine.kind == "append" else Redo(reason)


def _redo_if_matters(mine: Mine, theirs: Theirs) -> Verdict:
    matters = mine.depends_on or (lambda entry: mine.scope is None or entry.partition in mine.scope)
    files = tuple(entry.file for entry in theirs.added if matters(entry))
    if files or not theirs.is_known:
        return Redo(f"snapshot {theirs.snapshot_id} ({theirs.kind}) added files it reads", files)
    return Ok()


def _overlap(mine: Mine, theirs: Theirs) -> bool:
    if mine.scope is None or theirs.partitions is None:
        return bool(theirs.partitions is None or theirs.partitions)
    return not mine.scope.isdisjoint(theirs.partitions)


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    worst: Verdict = Ok()
    for verdict in verdicts:
        if isinstance(verdict, Fail):
            return verdict
        if isinstance(verdict, Redo) and not isinstance(worst, Redo):
            worst = verdict
        elif isinstance(verdict, Ok) and isinstance(worst, Ok):
            worst = Ok(worst.dropped | verdict.dropped)
    return worst


_ROWS: dict[str, Callable[[Mine, Theirs], Verdict]] = {
    "append": _append,
    "overwrite": _overwrite,
    "restore": _overwrite,
    "create": _overwrite,
    "delete": _delete,
    "upsert": _delete,
    "compact": _compact,
    "schema": _schema,
}

"""Changes of several tables of a warehouse that become visible together, without a server.

Each table gets a snapshot that counts only once the transaction is committed; creating the decision
commits all of them (see `metadata.decisions`). Where one table changed, it is an ordinary commit.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NoReturn, Protocol, Self

import msgspec

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.forks import process
from fermion.redaction import redacted
from fermion.typing import FilterLike
from fermion_table.catalog.names import Name, table_name
from fermion_table.catalog.tables import Tables
from fermion_table.catalog.warehouse import Warehouse
from fermion_table.commit.commit import Plan, Published, Publisher
from fermion_table.commit.committed_files import delete_unpublished
from fermion_table.commit.identities import committed_before
from fermion_table.commit.next_snapshot import LaterThanTransaction, Prepared
from fermion_table.commit.request import CommitMetadata, CommitRequest, WrittenFiles
from fermion_table.commit.schema_versions import SchemaMerge
from fermion_table.errors import CommitConflict, CommitStateUnknown
from fermion_table.merging.primary_key import primary_key_of
from fermion_table.metadata.decisions import (
    Decision,
    Participant,
    decide,
    warehouse_id,
)
from fermion_table.metadata.history import latest, walk
from fermion_table.metadata.shared_files import is_outside
from fermion_table.metadata.snapshot import TRANSACTIONS, PartOfTransaction, Snapshot
from fermion_table.moments import now_ms
from fermion_table.operations.row_changes import RowChange
from fermion_table.operations.transaction import Statement
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.storage.paths import MAIN, unique_name
from fermion_table.storage.store import AtomicStore
from fermion_table.table.state import Moved, TableState
from fermion_table.table.table import Table
from fermion_table.writing.writer_message import WriterMessage

TRIES_MAX = 10
"""How often a transaction begins again that others gave up, or that needs a later time."""
COMMITS_LOOKED_AT = 16
"""Of a table that is opened, to find other transactions; then each one opened before is asked."""
_LATER = "end the transaction, and call it then"
REFUSED = {
    "branches": _LATER,
    "commit_compaction": _LATER,
    "compact": _LATER,
    "consumers": _LATER,
    "expire_snapshots": _LATER,
    "maintain": _LATER,
    "mirrors": _LATER,
    "refresh": "begin another one to see newer rows",
    "remove_orphan_files": _LATER,
    "repair": _LATER,
    "restore": _LATER,
    "tags": _LATER,
    "transaction": "there are no transactions within transactions",
    "undo": _LATER,
}
"""What a table of a transaction does not offer, and what to do."""


class Change(Protocol):
    """What a transaction does to one table."""

    @property
    def changes_nothing(self) -> bool:
        """Whether it needs no snapshot, as far as is known."""

    def publish(self, publisher: Publisher, metadata: CommitMetadata, tried: int) -> Published:
        """Create the snapshot of the table."""

    def won(self, published: Published) -> object:
        """What it has made is committed."""

    def lost(self, error: BaseException | None) -> None:
        """Delete what it has made, unless it may be committed."""


class ChangedRows(Statement):
    """Changes of rows, which wait for the end of the transaction: `commit` commits nothing yet."""

    _made: frozenset[str] = frozenset()

    @property
    def changes_nothing(self) -> bool:
        """Whether deletes and updates found no row, and appends had none to add."""
        return self._changes_nothing(self._draft)

    def __exit__(self, *raised: object) -> None:
        """Go on, after an error too: what failed has changed nothing."""

    def commit(self) -> Snapshot:
        """Leave it to the transaction; the snapshot that it began with."""
        self._enter()
        return self._draft.base

    def commit_written(
        self, messages: Sequence[WriterMessage], merge: SchemaMerge | None = None
    ) -> Snapshot:
        """Add the files of writers, which belong to the transaction from here on."""
        self._enter()
        self._add_written(messages, merge)
        return self._draft.base

    def commit_found(self, rows: RowChange, messages: Sequence[WriterMessage]) -> Snapshot:
        """Take rows that an engine has found in the snapshot that the transaction began with.

        Raises InvalidArgumentError: Another change of the table came before, which was not read.
        """
        if self._changes:
            self._additions(messages)  # which are deleted with the others that are not published
            raise InvalidArgumentError(
                f"{redacted(self._publisher.store.location)}: rows that an engine finds are those "
                "of the table as the transaction opened it: make this the first change of the table"
            )
        return super().commit_found(rows, messages)

    def publish(self, publisher: Publisher, metadata: CommitMetadata, tried: int) -> Published:
        """Create the snapshot of the table."""
        self._is_over, self._metadata = True, metadata
        self._made |= self._files.paths
        self._seen_at = None if tried else self._seen_at
        return self._publish(publisher)

    won = Statement._won

    def lost(self, error: BaseException | None) -> None:
        """Delete the files that were made, unless they may be committed."""
        self._is_over = True
        if not isinstance(error, CommitStateUnknown):
            self._files.take(self._made)
        self._give_up()


@dataclass(slots=True)
class PlannedChange:
    """A change of the schema, or of whole columns, which is the only one of its table."""

    store: AtomicStore
    known: Snapshot
    plan: Plan
    made: frozenset[str]
    changes_nothing: bool

    def publish(self, publisher: Publisher, metadata: CommitMetadata, tried: int) -> Published:
        """Create the snapshot of the table."""

        def plan(base: Snapshot) -> CommitRequest | None:
            request = self.plan(base)
            if request is None:
                return None
            message = metadata.message or request.metadata.message
            return replace(request, metadata=replace(metadata, message=message))

        return publisher.publish(self.known, plan, metadata, looks=False)

    def won(self, published: Published) -> None:
        """Nothing is left to do."""

    def lost(self, error: BaseException | None) -> None:
        """Delete the column files, unless they may be committed."""
        if not isinstance(error, CommitStateUnknown):
            owned, written = OwnedFiles(self.store), WrittenFiles(files=frozenset())
            owned.take(self.made)
            delete_unpublished(owned, written, MAIN)


class TransactionState(TableState):
    """A table of a transaction: it keeps to its snapshot, and gathers what is done to it."""

    is_in_transaction = True

    def __init__(
        self, store: AtomicStore, snapshot: Snapshot, check: Callable[[], None], seen_at: float
    ) -> None:
        super().__init__(store, snapshot)
        self.seen_at = seen_at
        self.change: ChangedRows | PlannedChange | None = None
        self.messages: list[str] = []
        self._check = check

    @property
    def publisher(self) -> Publisher:  # type: ignore[override]
        """What takes changes of the schema and of columns."""
        return _Deferring(self.store, state=self)

    def refresh(self) -> Snapshot:
        """Keep the snapshot."""
        return self.snapshot

    refresh_for_append = refresh

    def check_writable(self) -> None:
        """Refuse to write once the transaction is over."""
        self._check()

    def statement(
        self,
        metadata: CommitMetadata,
        moved: Moved,
        *,
        base: Snapshot | None = None,
        seen_at: float | None = None,
    ) -> ChangedRows:
        """What gathers the changes of rows."""
        self._take(metadata)
        if isinstance(self.change, PlannedChange):
            raise self._only_one()
        if self.change is None:
            self.change = ChangedRows(
                Publisher(self.store), self.snapshot, metadata=metadata, seen_at=self.seen_at
            )
        return self.change

    def defer(self, plan: Plan, metadata: CommitMetadata) -> Published:
        """Take a change of the schema or of columns; it is made already, on this snapshot."""
        self._take(metadata)
        if self.change is not None:
            raise self._only_one()
        request = plan(self.snapshot)
        made = frozenset() if request is None else request.unsure
        self.change = PlannedChange(self.store, self.snapshot, plan, made, request is None)
        return Published(self.snapshot, None if request is None else request.added)

    def _take(self, metadata: CommitMetadata) -> None:
        self._check()
        if metadata.identity is not None or metadata.properties:
            raise InvalidArgumentError(
                f"{redacted(self.location)}: commit_user, commit_identifier and properties are "
                "not of one change of a transaction: give commit_user and commit_identifier to "
                "Catalog.transaction"
            )
        if metadata.message is not None:
            self.messages.append(metadata.message)

    def _only_one(self) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"{redacted(self.location)}: a change of the schema, or of whole columns, is the only "
            "change of its table in a transaction: make it in one of its own, or append with "
            "schema_mode='merge'"
        )


@dataclass(frozen=True, slots=True)
class _Deferring(Publisher):
    """Hands what is to be published to a table of a transaction."""

    state: TransactionState | None = None

    def latest(self, known: Snapshot, *, seen_at: float | None = None) -> Snapshot:
        """The snapshot that the transaction sees."""
        return known

    def publish(
        self,
        known: Snapshot,
        plan: Plan,
        metadata: CommitMetadata,
        *,
        looks: bool = True,
        seen_at: float | None = None,
    ) -> Published:
        """Keep it for the end of the transaction."""
        assert self.state is not None
        return self.state.defer(plan, metadata)


class TransactionTable(Table):
    """A table in a transaction over several tables: `CatalogTransaction.table`.

    It writes as a `Table`, and nothing is visible to others before the transaction is committed.
    It reads what the table held when the transaction opened it, without its own changes. Each
    method that changes something returns the snapshot that the transaction began with.
    """

    _state: TransactionState

    def __init__(self, state: TransactionState) -> None:
        self._state = state

    def overwrite_written(
        self,
        messages: Iterable[WriterMessage],
        *,
        filter: FilterLike | None = None,
        dynamic: bool = False,
        merge: SchemaMerge | None = None,
        message: str | None = None,
    ) -> Snapshot:
        """Replace rows by the files of writers; for engines.

        Parameters
        ----------
        messages, merge
            As of `Table.commit`.
        filter, dynamic
            As of `Table.overwrite`.
        message
            For the history.

        Raises
        ------
        TypeError, InvalidArgumentError, ColumnNotFoundError
        """
        statement = self._state.statement(CommitMetadata(message), self._state.move_to)
        statement.overwrite_written(messages, filter=filter, dynamic=dynamic, merge=merge)
        return self.snapshot

    def __reduce__(self) -> NoReturn:
        """Refuse a copy: both would commit, or delete, the same files."""
        raise TypeError(
            "a table of a transaction can't be pickled or copied: write with writer_factory() "
            "elsewhere, and give its messages to commit() here"
        )


def _refused(name: str) -> property:
    def refuse(table: TransactionTable) -> NoReturn:
        raise InvalidArgumentError(
            f"{redacted(table.location)}: {name} can't be used in a transaction over several "
            f"tables: {REFUSED[name]}"
        )

    return property(refuse)


for _name in REFUSED:
    setattr(TransactionTable, _name, _refused(_name))


class CatalogTransaction:
    """Changes of several tables that become visible together: `Catalog.transaction`.

    The end of the ``with`` block commits; an exception in it, an interrupt too, gives up.

    Parameters
    ----------
    warehouse, tables
        Where the tables lie, and how they are found.
    metadata
        The identity of the transaction, if it has one.
    is_serializable
        Whether no table may change that was opened.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        tables: Tables,
        metadata: CommitMetadata,
        *,
        is_serializable: bool = False,
    ) -> None:
        self._warehouse = warehouse
        self._tables = tables
        self._metadata = metadata
        self._is_serializable = is_serializable
        self._opened: dict[str, tuple[str, TransactionTable]] = {}
        self._process = process()
        self._is_over = False

    def __reduce__(self) -> NoReturn:
        """Refuse a copy: both would commit, or delete, the same files."""
        raise TypeError("a transaction over several tables can't be pickled or copied")

    def __repr__(self) -> str:
        names = ", ".join(path for path, _ in self._opened.values()) or "no tables"
        return f"<CatalogTransaction of {names}{', finished' if self._is_over else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if self._is_over:
            return
        if kind is None:
            self.commit()
        else:
            self.abort()

    def table(self, name: Name) -> TransactionTable:
        """A table of the warehouse, to read and to change in this transaction.

        What two tables show never holds half of another transaction. A table that has two names is
        one table here.

        Raises
        ------
        CommitConflict
            Another transaction has changed this table and one that was opened before, since that
            was opened: begin again.
        InvalidArgumentError
            The table lies outside of the warehouse; or the transaction is over.
        TableNotFound, TypeError
        """
        self._enter()
        checked = table_name(name)
        placed = self._tables.required(checked)
        if is_outside(placed.path):
            raise InvalidArgumentError(
                f"{checked}: lies outside of the warehouse, at {redacted(placed.path)}: a "
                "transaction changes tables that lie in it"
            )
        seen_at = time.monotonic()
        snapshot = Table.at(placed.store).snapshot
        known = self._opened.get(snapshot.table_uuid)
        if known is not None:
            return known[1]
        self._refuse_halves(str(checked), placed.store, snapshot)
        table = TransactionTable(TransactionState(placed.store, snapshot, self._enter, seen_at))
        self._opened[snapshot.table_uuid] = placed.path, table
        return table

    def commit(self) -> dict[str, Snapshot]:
        """Make all changes visible at once.

        Returns
        -------
        dict[str, Snapshot]
            The new snapshots, by the paths of their tables in the warehouse; none if nothing
            changed, those of an earlier try of the same identity if there was one.

        Raises
        ------
        CommitConflict
            Another commit makes a change impossible, or, where the isolation is serializable, has
            changed a table; nothing was published.
        CommitStateUnknown
            Whether the transaction was committed can't be told; nothing was deleted.
        InvalidArgumentError
            The identity is that of another commit of some of the tables.
        """
        self._enter()
        self._is_over = True
        opened = [(uuid, path, table._state) for uuid, (path, table) in self._opened.items()]
        every = [_Part(*each, each[-1].change) for each in opened if each[-1].change is not None]
        parts = [part for part in every if not part.change.changes_nothing]
        if self._is_serializable:
            changed = {part.uuid for part in parts}
            read = [_Part(*each, _read(each[-1])) for each in opened if each[0] not in changed]
            for part in (*parts, *read):
                part.check = partial(_refuse_changes, part.state)
            parts = parts + read if parts else []
        parts.sort(key=lambda part: part.uuid)
        try:
            if self._is_serializable and not parts:
                for part in read:
                    _refuse_changes(part.state, latest(part.state.store))
            if len(parts) < 2:
                published = [part.publish(self._metadata, None, 0) for part in parts]
            else:
                published = self._earlier(parts) or self._together(parts)
        except BaseException as error:
            for part in every:
                part.change.lost(error)
            raise
        for part in every:
            if part not in parts:
                part.change.lost(None)
        for part, each in zip(parts, published, strict=True):
            part.change.won(each)
        return {part.path: each.snapshot for part, each in zip(parts, published, strict=True)}

    def abort(self) -> None:
        """Give up: nothing is published, and the files that were written are deleted."""
        self._enter()
        self._is_over = True
        for _, table in self._opened.values():
            if table._state.change is not None:
                table._state.change.lost(None)

    def _enter(self) -> None:
        if self._is_over:
            raise InvalidArgumentError("the transaction is finished: begin a new one")
        if self._process is not process():
            raise InvalidArgumentError(
                "the transaction was begun by another process, from which this one was forked: "
                "begin one here"
            )

    def _refuse_halves(self, name: str, store: AtomicStore, opened: Snapshot) -> None:
        """Refuse a table that another transaction has changed together with one opened before.

        What it shows holds all transactions up to now. What was opened before lacks those that are
        later than its snapshot, and no others, as times ascend in every table: its own history is
        looked at only if that of this table has too many commits since.
        """
        if TRANSACTIONS not in opened.reader_features:
            return
        older = {uuid: table.snapshot for uuid, (_, table) in self._opened.items()}
        for snapshot in islice(walk(store, opened), COMMITS_LOOKED_AT):
            older = {uuid: old for uuid, old in older.items() if old.time_ms < snapshot.time_ms}
            self._refuse_half(name, snapshot, older)
            if not older or snapshot.parent is None:
                return
        for uuid, old in older.items():
            known = self._opened[uuid][1].store
            for snapshot in walk(known, latest(known, start=old.id)):
                if snapshot.id <= old.id:
                    break
                part = snapshot.transaction
                if part is not None and opened.table_uuid in part.participants:
                    self._refuse_half(name, snapshot, {uuid: old})

    def _refuse_half(self, name: str, changed: Snapshot, older: Iterable[str]) -> None:
        """Refuse a snapshot of a transaction that has changed a table opened before, by UUIDs."""
        part = changed.transaction
        if part is None:
            return
        for uuid in set(part.participants).intersection(older):
            raise CommitConflict(
                f"{name}: transaction {part.id} has changed this table and "
                f"{self._opened[uuid][0]}, which was opened here before that: begin the "
                "transaction again",
                theirs=f"transaction {part.id}",
            )

    def _earlier(self, parts: Sequence[_Part]) -> list[Published] | None:
        """The snapshots of an earlier try of the same identity; None: there was none."""
        if self._metadata.identity is None:
            return None
        found = [part.earlier(self._metadata.identity) for part in parts]
        snapshots = [each for each in found if each is not None]
        if not snapshots:
            return None
        ids = {each.transaction.id if each.transaction else None for each in snapshots}
        if len(snapshots) < len(parts) or len(ids) > 1 or None in ids:
            user, identifier = self._metadata.identity
            raise InvalidArgumentError(
                f"{redacted(self._warehouse.location)}: {user!r} committed {identifier!r} before, "
                "but not to all of these tables in one transaction; use another commit_identifier"
            )
        return [Published(each, is_earlier=True) for each in snapshots]

    def _together(self, parts: Sequence[_Part]) -> list[Published]:
        """Publish a snapshot of each table, and decide; again where others gave that up."""
        root, after_ms = self._warehouse.root, 0
        identity = warehouse_id(root)
        took_ms, last = 0, ""
        for tried in range(TRIES_MAX):
            began, last = time.monotonic(), unique_name()
            times = (part.state.snapshot.time_ms + 1 for part in parts)
            prepared = Prepared(
                part=PartOfTransaction(
                    id=last,
                    above=1,
                    warehouse=identity,
                    participants=tuple(part.uuid for part in parts),
                ),
                time_ms=max(now_ms(), after_ms, *times) + 2 * took_ms,
            )
            try:
                published = [part.publish(self._metadata, prepared, tried) for part in parts]
                if any(each.is_earlier for each in published):
                    raise CommitConflict(
                        "an earlier try of this transaction was committed just now"
                    )
                members = [
                    part.participant(each.snapshot)
                    for part, each in zip(parts, published, strict=True)
                    if each.snapshot.transaction is not None
                    and each.snapshot.transaction.id == last
                ]
                if not members:
                    return published
                decision = Decision(
                    id=last, state="committed", time_ms=prepared.time_ms,
                    participants=tuple(members),
                )  # fmt: skip
                if self._decided(decision):
                    return published
            except LaterThanTransaction as error:
                after_ms = error.time_ms + 1
                self._give_up(last)
            except _Undecided as error:
                raise CommitStateUnknown(str(error)) from error
            except CommitStateUnknown as error:  # of a snapshot, which does not count
                self._give_up(last)
                raise CommitConflict(
                    f"{redacted(root.location)}: transaction over {len(parts)} tables: given up, "
                    f"and nothing was published, as a reply was lost: {error}"
                ) from error
            except BaseException:
                self._give_up(last)
                raise
            took_ms = int((time.monotonic() - began) * 1000) + 1
        raise CommitConflict(
            f"{redacted(root.location)}: transaction over {len(parts)} tables: given up by other "
            f"commits {TRIES_MAX} times, as it took too long; try again with fewer writers",
            theirs=f"transaction {last}",
        )

    def _decided(self, decision: Decision) -> bool:
        """Commit; whether that counts, or others gave the transaction up before."""
        aborted = Decision(id=decision.id, state="aborted", time_ms=now_ms())
        try:
            return decide(self._warehouse.root, decision).state == "committed"
        except CommitStateUnknown as error:
            try:
                return decide(self._warehouse.root, aborted).state == "committed"  # settles it
            except (CommitStateUnknown, OSError):  # the first may come yet
                raise _Undecided(str(error)) from error

    def _give_up(self, transaction: str) -> None:
        """Decide that a try has failed; where that can't be stored, others do so after a lease."""
        decision = Decision(id=transaction, state="aborted", time_ms=now_ms())
        with contextlib.suppress(OSError, CommitStateUnknown):
            decide(self._warehouse.root, decision)


def _read(state: TransactionState) -> PlannedChange:
    """What publishes a snapshot without files of a table that was only read."""
    told = CommitMetadata("read by a transaction")

    def plan(base: Snapshot) -> CommitRequest:
        return CommitRequest(kind="append", base=base, metadata=told)

    return PlannedChange(state.store, state.snapshot, plan, frozenset(), changes_nothing=False)


def _refuse_changes(state: TransactionState, base: Snapshot) -> dict[str, str]:
    """Refuse commits since a transaction opened a table that may change what it read.

    Returns: No properties, as `CommitMetadata.properties_after` gives them.
    """
    opened = state.snapshot
    for snapshot in walk(state.store, base):
        if snapshot.id <= opened.id:
            return {}
        if not _keeps_rows(state, snapshot):
            break
    raise CommitConflict(
        f"{redacted(state.location)}: changed since the transaction opened snapshot {opened.id} of "
        "it, and its isolation is serializable: begin the transaction again",
        theirs=f"{base.kind} (snapshot {base.id})",
    )


def _keeps_rows(state: TransactionState, snapshot: Snapshot) -> bool:
    """Whether scans return the same rows after a commit, as far as its kind and settings tell."""
    if snapshot.kind == "compact":
        key = primary_key_of(state.schema)
        return key is None or (key.options.reads_level0 and key.options.record_expiry is None)
    is_read = snapshot.kind == "append" and snapshot.schema == state.snapshot.schema
    return is_read and not snapshot.deltas.files_added


class _Undecided(Exception):
    """Whether a transaction was committed is not known."""


@dataclass(slots=True)
class _Part:
    """A table that a transaction changes."""

    uuid: str
    path: str
    state: TransactionState
    change: Change
    check: Callable[[Snapshot], dict[str, str]] | None = None
    """Called with each snapshot that its own is to follow; raises where it must not."""

    def publish(self, metadata: CommitMetadata, prepared: Prepared | None, tried: int) -> Published:
        """Create its snapshot: one that counts by itself, or with the transaction."""
        if prepared is not None:
            part = msgspec.structs.replace(prepared.part, above=self.path.count("/") + 1)
            prepared = replace(prepared, part=part)
        message = "; ".join(self.state.messages) or None
        told = replace(metadata, message=message, properties_after=self.check)
        return self.change.publish(Publisher(self.state.store, MAIN, prepared), told, tried)

    def earlier(self, identity: tuple[str, int | str]) -> Snapshot | None:
        """Its snapshot of an earlier try."""
        newest = latest(self.state.store, start=self.state.snapshot.id)
        return committed_before(self.state.store, newest, identity, branch=MAIN)

    def participant(self, snapshot: Snapshot) -> Participant:
        """Its snapshot, as the decision names it."""
        return Participant(
            table_uuid=self.uuid,
            path=self.path,
            branch=MAIN,
            snapshot_id=snapshot.id,
            hash=snapshot.hash,
        )

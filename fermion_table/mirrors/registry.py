"""The mirrors of a table: kept among its properties, made, listed, published and dropped.

A mirror is one property, `MIRROR` and its name, whose value is JSON: what it is, where it lies
and which branch it shows. It names no credentials: those of the table open the mirror, too, or
those that are given to `Mirrors.publish`.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from fermion.arguments import flag, function, mapping
from fermion.display import NamedValues, short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.redaction import redacted
from fermion_table.argument_checks import check_text
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.history import SchemaVersions, latest
from fermion_table.mirrors.publish import Publication, Publisher, Runner, write_here
from fermion_table.mirrors.target import MirrorTarget, Source
from fermion_table.schema.properties import MIRROR, is_mirror
from fermion_table.schema.property_kinds import nearest
from fermion_table.schema.schema import TableSchema
from fermion_table.storage.location import Location, open_store
from fermion_table.storage.paths import check_name
from fermion_table.storage.store import AtomicStore, access_of

KINDS: Mapping[str, tuple[str, str, str]] = {
    "delta": ("fermion_table.mirrors.delta", "DeltaTarget", ""),
    "iceberg": ("fermion_table.mirrors.iceberg", "IcebergTarget", "iceberg"),
    "paimon": ("fermion_table.mirrors.paimon", "PaimonTarget", "paimon"),
}
"""By the kind of a mirror: module and class of its target, and the extra with its library."""


def target_class(kind: str, what: str) -> type[MirrorTarget]:
    """The target of a kind of mirrors.

    Raises InvalidArgumentError: There is no such kind, or its library is not installed; begins with
        `what`.
    """
    if kind not in KINDS:
        raise InvalidArgumentError(
            f"{what}: kind {kind!r}: expected one of {', '.join(KINDS)}{nearest(kind, KINDS)}"
        )
    module, name, extra = KINDS[kind]
    try:
        found: type[MirrorTarget] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if not extra or (error.name or "").startswith("fermion"):
            raise
        raise InvalidArgumentError(
            f"{what}: needs {error.name}: pip install 'fermion[{extra}]'"
        ) from error
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """A mirror of a table.

    Attributes
    ----------
    name
        Unique among the mirrors of the table.
    kind
        ``delta``, ``iceberg`` or ``paimon``.
    location
        Its directory.
    branch
        The branch that it shows.
    history
        Whether it began with the oldest snapshot that there was.
    options
        Of its kind.
    """

    name: str
    kind: str
    location: str
    branch: str
    history: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    __repr__ = short_repr

    def text(self) -> str:
        """As a property's value."""
        said: dict[str, Any] = {"kind": self.kind, "location": self.location, "branch": self.branch}
        if self.history:
            said["history"] = True
        return json.dumps(said | ({"options": dict(self.options)} if self.options else {}))

    @classmethod
    def of(cls, name: str, text: str) -> Mirror:
        """From a property.

        Raises CorruptMetadata: The value is no mirror.
        """
        try:
            said = json.loads(text)
            return cls(
                name=name,
                kind=str(said["kind"]),
                location=str(said["location"]),
                branch=str(said["branch"]),
                history=bool(said.get("history", False)),
                options=dict(said.get("options", {})),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptMetadata(
                f"property {MIRROR}{name}", "JSON with kind, location and branch", f"{text!r:.200}"
            ) from error

    def target(
        self, source: AtomicStore, storage_options: Mapping[str, Any] | None
    ) -> MirrorTarget:
        """What writes it.

        Raises InvalidArgumentError: A kind or an option that this version does not know.
        """
        make = target_class(self.kind, f"mirror {self.name!r}")
        unknown = [each for each in self.options if each not in make.options]
        if unknown:
            raise InvalidArgumentError(
                f"{unknown[0]}={self.options[unknown[0]]!r}: is no option of a {self.kind} mirror: "
                f"expected {', '.join(make.options) or 'none'}"
            )
        options = source.storage_options if storage_options is None else dict(storage_options)
        store = open_store(
            self.location,
            storage_options=options,
            durability=getattr(source, "durability", "full"),
            access=access_of(source),
            what="location",
        )
        return make(store, **self.options)


class ChangesProperties(Protocol):
    """Changes the table's properties, as `Table.set_properties` does."""

    def __call__(self, updates: Mapping[str, str], *, remove: Sequence[str] = ()) -> object:
        """Commit the change."""


@dataclass(frozen=True, slots=True, repr=False)
class Mirrors(NamedValues[Mirror]):
    """The mirrors of a table: copies of its snapshots that other engines read.

    A mirror is a second copy of all data, as Parquet files of a Delta, Iceberg or Paimon table.
    ``"lake" in table.mirrors`` and ``for mirror in table.mirrors`` read the list.

    Parameters
    ----------
    store, branch
        Of the table.
    set_properties
        Changes its properties.
    """

    store: AtomicStore
    branch: str
    set_properties: ChangesProperties

    def create(
        self,
        kind: str,
        location: Location,
        *,
        name: str | None = None,
        history: bool = False,
        **options: str,
    ) -> Mirror:
        """Add a mirror to the table; `publish` writes it.

        The mirror is noted in the table's properties, as one snapshot. It shows this table's
        branch. A mirror of this branch that lies at the location already goes on where it is.

        Parameters
        ----------
        kind
            ``"delta"``; or ``"iceberg"`` or ``"paimon"``, which need the extra of their name, as in
            ``fermion[iceberg]``.
        location
            A directory that nobody else writes to, local or an fsspec URL, outside of the table.
        name
            Letters, digits and ``_ . -``; None: the kind.
        history
            Begin with the oldest snapshot that has not expired; else with the newest.
        options
            Of ``iceberg``: ``catalog``, its name in the configuration of pyiceberg, and ``table``,
            the table's name there, such as ``"db.sales"``. Without them all metadata lies in the
            directory.

        Raises
        ------
        UnsupportedTypeError
            A column has a type that the mirror can't have; nothing was written.
        InvalidArgumentError
            A kind, name or option that is not known, or is taken; a location that is not free; a
            column whose name the mirror can't have.
        """
        kind = check_text(kind, "kind").lower()
        chosen = check_name(kind if name is None else check_text(name, "name"), "mirror")
        place = open_store(location, what="location").location
        given = {each: check_text(value, each) for each, value in options.items()}
        mirror = Mirror(
            name=chosen,
            kind=kind,
            location=place,
            branch=self.branch,
            history=flag(history, "history"),
            options=given,
        )
        if _within(place, self.store.location) or _within(self.store.location, place):
            raise InvalidArgumentError(
                f"location={redacted(place)!r}: expected a directory outside of the table "
                f"{redacted(self.store.location)}"
            )
        taken = [each for each in self.list() if chosen == each.name or place == each.location]
        if taken:
            raise InvalidArgumentError(
                f"{self.store.location}: mirror {taken[0].name!r} at {taken[0].location} has this "
                "name, or this location, already"
            )
        newest = latest(self.store, branch=self.branch)
        target = mirror.target(self.store, None)
        target.check(self._schema())
        target.load(Source(newest.table_uuid, self.branch))
        self.set_properties({MIRROR + chosen: mirror.text()})
        return mirror

    def publish(
        self,
        name: str | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        runner: Runner | None = None,
    ) -> list[Publication]:
        """Bring mirrors up to the newest snapshot, each snapshot as one commit of theirs.

        It can be stopped anywhere and repeated, and several may run at once: no snapshot is
        published twice. Rows are copied once for each data file, deletions and merges of keys
        included: what a commit changes in a file, or in files of one key range, is copied anew.

        Parameters
        ----------
        name
            Of one mirror; None: all of this branch.
        storage_options
            Of the mirror's storage; None takes the table's.
        runner
            For engines: takes a task and splits with the paths of their copies, and writes these
            anywhere; None: threads of this process.

        Returns
        -------
        list of Publication
            One for each mirror.

        Raises
        ------
        InvalidArgumentError
            There is no such mirror; or it shows another history than this table's; or a value that
            the mirror can't have, as times beyond its range.
        UnsupportedTypeError
            A column has a type that the mirror can't have; no snapshot was published.
        CommitConflict
            Somebody else has written to the mirror.
        VersionNotFound
            Its next snapshot expired meanwhile; publish again.
        """
        mapping(storage_options, "storage_options")
        function(runner, "runner")
        chosen = self.list() if name is None else [self._named(check_text(name, "name"))]
        return [
            Publisher(
                mirror.name,
                self.store,
                mirror.branch,
                mirror.target(self.store, storage_options),
                history=mirror.history,
                runner=write_here if runner is None else runner,
            ).publish()
            for mirror in chosen
        ]

    def list(self) -> list[Mirror]:
        """The mirrors that show this branch, by name."""
        names = {
            name.removeprefix(MIRROR): text
            for name, text in self._schema().properties.items()
            if is_mirror(name)
        }
        mirrors = [Mirror.of(name, names[name]) for name in sorted(names)]
        return [mirror for mirror in mirrors if mirror.branch == self.branch]

    def drop(self, name: str) -> None:
        """Forget a mirror; its files stay, as readers may use them: delete its directory yourself.

        Raises
        ------
        InvalidArgumentError
            There is no such mirror.
        """
        mirror = self._named(check_text(name, "name"))
        self.set_properties({}, remove=[MIRROR + mirror.name])

    def _schema(self) -> TableSchema:
        return SchemaVersions(self.store, latest(self.store, branch=self.branch)).current

    def _named(self, name: str) -> Mirror:
        mirrors = {mirror.name: mirror for mirror in self.list()}
        if name not in mirrors:
            known = ", ".join(mirrors) or "none"
            raise InvalidArgumentError(
                f"{self.store.location}: no mirror {name!r} of branch {self.branch!r}: there are "
                f"{known}{nearest(name, mirrors)}"
            )
        return mirrors[name]

    def _facts(self, value: Mirror) -> dict[str, Any]:
        return {
            "name": value.name,
            "kind": value.kind,
            "location": redacted(value.location),
            "branch": value.branch,
        }


def _within(inner: str, outer: str) -> bool:
    """Whether a location is another one, or lies below it."""
    return f"{inner.rstrip('/')}/".startswith(f"{outer.rstrip('/')}/")

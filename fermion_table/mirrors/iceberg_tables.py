"""Where an Iceberg table's metadata lies: in its own directory, or with a catalog of pyiceberg.

In a directory the newest of ``metadata/v1.metadata.json``, ``v2.metadata.json``, ... counts, as for
tables of Hadoop. Each is created if absent, on every storage that tables lie on.
"""

from __future__ import annotations

import io
import re
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV2
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

from fermion.exports import dataclass
from fermion_table.errors import CorruptMetadata
from fermion_table.storage.store import AtomicStore, CreateResult

METADATA = "metadata"
HINT = f"{METADATA}/version-hint.text"
_VERSION = re.compile(rf"{METADATA}/v(\d+)\.metadata\.json")


@dataclass(frozen=True, slots=True)
class HeldTable:
    """An Iceberg table as it was read, or as it is to be made.

    files: Reads and writes its metadata.
    detail: What the place that it lies in needs to commit.
    """

    metadata: TableMetadata
    files: FileIO
    detail: Any


class TablePlace(ABC):
    """Where an Iceberg table lies."""

    @abstractmethod
    def load(self) -> HeldTable | None:
        """The newest metadata; None: there is no table."""

    @abstractmethod
    def create(self, schema: Schema, spec: PartitionSpec, properties: dict[str, str]) -> HeldTable:
        """A new table without snapshots; in a directory it appears with its first commit."""

    @abstractmethod
    def commit(
        self,
        held: HeldTable,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> HeldTable | None:
        """Publish changes; None: another commit came first, or it is not known."""


class DirectoryTable(TablePlace):
    """A table whose metadata lies in its own directory.

    store: Of that directory.
    """

    def __init__(self, store: AtomicStore) -> None:
        self._store = store
        self._files = StoreFiles(store)

    def load(self) -> HeldTable | None:
        """The metadata of the greatest version."""
        versions = [
            int(match[1])
            for item in self._store.list(METADATA)
            if (match := _VERSION.fullmatch(item.path))
        ]
        if not versions:
            return None
        path = f"{METADATA}/v{max(versions)}.metadata.json"
        try:
            metadata = TableMetadataUtil.parse_raw(self._store.read(path).decode())
        except (ValueError, ValidationError) as error:
            raise CorruptMetadata(path, "metadata of Iceberg", str(error)[:200]) from error
        return HeldTable(metadata, self._files, max(versions))

    def create(self, schema: Schema, spec: PartitionSpec, properties: dict[str, str]) -> HeldTable:
        """Metadata with the schema as it is, ids and all."""
        metadata = TableMetadataV2(
            location=self._store.location,
            schemas=[schema],
            last_column_id=schema.highest_field_id,
            current_schema_id=schema.schema_id,
            partition_specs=[spec],
            default_spec_id=spec.spec_id,
            last_partition_id=spec.last_assigned_field_id,
            sort_orders=[UNSORTED_SORT_ORDER],
            default_sort_order_id=0,
            properties=properties,
        )
        return HeldTable(metadata, self._files, 0)

    def commit(
        self,
        held: HeldTable,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> HeldTable | None:
        """Create the next version's file."""
        version = held.detail + 1
        before = f"{METADATA}/v{held.detail}.metadata.json" if held.detail else None
        metadata = update_table_metadata(
            held.metadata,
            updates,
            metadata_location=None if before is None else self._store.locate(before),
        )
        data = metadata.model_dump_json(exclude_none=True).encode()
        created = self._store.create_if_absent(f"{METADATA}/v{version}.metadata.json", data)
        if created is not CreateResult.CREATED:
            return None
        self._store.overwrite_hint(HINT, str(version).encode())
        return HeldTable(metadata, self._files, version)


class CatalogTable(TablePlace):
    """A table of a catalog that pyiceberg is configured for.

    store: Of the directory in which its files lie.
    catalog: The name of the catalog in pyiceberg's configuration.
    table: Its name there, with its namespace: ``"db.sales"``.
    """

    def __init__(self, store: AtomicStore, catalog: str, table: str) -> None:
        self._location = store.location
        self._catalog: Catalog = load_catalog(catalog)
        self._name = table

    def load(self) -> HeldTable | None:
        """What the catalog says."""
        try:
            table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None
        return HeldTable(table.metadata, table.io, table)

    def create(self, schema: Schema, spec: PartitionSpec, properties: dict[str, str]) -> HeldTable:
        """An empty table in the catalog; its schema gets its own ids with the first commit."""
        namespace = self._catalog.namespace_from(self._name)
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace_if_not_exists(namespace)
        with suppress(TableAlreadyExistsError):  # another publisher may have made it
            self._catalog.create_table(
                self._name, schema, location=self._location, properties=properties
            )
        held = self.load()
        assert held is not None
        return held

    def commit(
        self,
        held: HeldTable,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> HeldTable | None:
        """Let the catalog commit."""
        try:
            self._catalog.commit_table(held.detail, requirements, updates)
        except (CommitFailedException, CommitStateUnknownException):
            return None
        return self.load()


class StoreFiles(FileIO):
    """The files of a directory, for pyiceberg."""

    def __init__(self, store: AtomicStore) -> None:
        super().__init__()
        self._store = store

    def new_input(self, location: str) -> _StoredInput:
        """What reads a file."""
        return _StoredInput(self._store, location)

    def new_output(self, location: str) -> _StoredOutput:
        """What writes a file."""
        return _StoredOutput(self._store, location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        place = location if isinstance(location, str) else location.location
        self._store.delete(_relative(self._store, place))


class _StoredInput(InputFile):
    def __init__(self, store: AtomicStore, location: str) -> None:
        super().__init__(location)
        self._store = store
        self._path = _relative(store, location)

    def __len__(self) -> int:
        return self._store.size(self._path)

    def exists(self) -> bool:
        """Whether the file is there."""
        return self._store.exists(self._path)

    def open(self, seekable: bool = True) -> Any:
        """Its bytes."""
        return io.BytesIO(self._store.read(self._path))


class _StoredOutput(OutputFile):
    """A small file, stored when it is closed."""

    def __init__(self, store: AtomicStore, location: str) -> None:
        super().__init__(location)
        self._store = store
        self._path = _relative(store, location)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def exists(self) -> bool:
        """Whether the file is there."""
        return self._store.exists(self._path)

    def to_input_file(self) -> _StoredInput:
        """What reads the file."""
        return _StoredInput(self._store, self.location)

    def create(self, overwrite: bool = False) -> Any:
        """A buffer, which is stored when it is closed."""
        return _Buffer(self)

    def stored(self, data: bytes) -> None:
        """Store the file."""
        self._size = len(data)
        self._store.write(self._path, data)


class _Buffer(io.BytesIO):
    def __init__(self, output: _StoredOutput) -> None:
        super().__init__()
        self._output = output

    def close(self) -> None:
        """Store the bytes, once."""
        if not self.closed:
            self._output.stored(self.getvalue())
        super().close()


def _relative(store: AtomicStore, location: str) -> str:
    """A path within the store, of an absolute one.

    Raises CorruptMetadata: It lies elsewhere.
    """
    beginning = f"{store.location.rstrip('/')}/"
    if not location.startswith(beginning):
        raise CorruptMetadata("metadata of Iceberg", f"files below {beginning}", location)
    return location.removeprefix(beginning)

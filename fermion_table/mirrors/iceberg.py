"""An Iceberg table that shows a table: columns by field id, partitions by the same functions.

Manifests are written here with pyiceberg's writers: so a commit changes schema, partitioning and
single files at once, says that a compaction replaces files, and is never tried again by itself.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

import pyarrow as pa
import pyarrow.types as pat
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
)
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField as IcebergPartitionField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.mirrors.iceberg_tables import CatalogTable, DirectoryTable, HeldTable, TablePlace
from fermion_table.mirrors.target import (
    BRANCH,
    TABLE,
    MirrorTarget,
    Source,
    Step,
    TargetState,
    foreign_commit,
    position_of,
    properties_of,
)
from fermion_table.mirrors.types import plain_leaf
from fermion_table.schema import value_codec
from fermion_table.schema.schema import Field, PartitionField, TableSchema
from fermion_table.storage.store import AtomicStore

MANIFESTS_MAX = 100
"""More manifests than this are merged into one."""
PARTITION_ID_FIRST = 1000
_FORMAT_VERSION = 2
_CODEC: Any = "deflate"
_OPERATIONS = {
    "append": Operation.APPEND,
    "delete": Operation.DELETE,
    "overwrite": Operation.OVERWRITE,
    "replace": Operation.REPLACE,
    "none": Operation.APPEND,
}


def iceberg_leaf(dtype: pa.DataType) -> pa.DataType | None:
    """The type that Iceberg has for one of Arrow's."""
    plain = plain_leaf(dtype)
    return pa.int32() if plain in (pa.int8(), pa.int16()) else plain


@dataclass(frozen=True, slots=True)
class IcebergState:
    """An Iceberg table and the files that it shows.

    held: None: there is none yet.
    manifests: With live files, in their order.
    places: The manifest of each copy, by its path.
    """

    held: HeldTable | None = None
    manifests: list[ManifestFile] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)


class IcebergTarget(MirrorTarget):
    """An Iceberg table in a directory, or of a catalog.

    store: Of its directory.
    catalog, table: The catalog, as pyiceberg's configuration calls it, and the name of the table
        there; None: the directory has the metadata.
    """

    kind = "iceberg"
    table = "an Iceberg table"
    by_name = False
    leaf = staticmethod(iceberg_leaf)
    options = ("catalog", "table")

    def __init__(
        self, store: AtomicStore, *, catalog: str | None = None, table: str | None = None
    ) -> None:
        super().__init__(store)
        if (catalog is None) != (table is None) or (table is not None and "." not in table):
            raise InvalidArgumentError(
                f"catalog={catalog!r}, table={table!r}: expected both, the table with its "
                "namespace, as in 'db.sales', or neither"
            )
        self._place: TablePlace = DirectoryTable(store)
        if catalog is not None and table is not None:
            self._place = CatalogTable(store, catalog, table)

    def partition_by(self, schema: TableSchema) -> tuple[PartitionField, ...]:
        """All but those by floats, and hashes of what Iceberg stores in another unit."""
        return tuple(part for part in schema.partition_by if _has_counterpart(part, schema))

    def load(self, source: Source) -> TargetState:
        """Where the mirror stands, by its newest snapshot."""
        held = self._place.load()
        if held is None:
            return TargetState(detail=IcebergState())
        properties = held.metadata.properties
        if (properties.get(TABLE), properties.get(BRANCH)) != (source.table_uuid, source.branch):
            raise self.no_mirror_of(source)
        snapshot = held.metadata.current_snapshot()
        if snapshot is None:
            return TargetState(detail=IcebergState(held))
        summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
        position = position_of(summary)
        if position is None:
            operation = snapshot.summary.operation.value if snapshot.summary else "no summary"
            raise foreign_commit(self.where, f"snapshot {snapshot.snapshot_id} ({operation})")
        state = IcebergState(held)
        for manifest in snapshot.manifests(held.files):
            entries = manifest.fetch_manifest_entry(held.files)
            if entries:
                state.manifests.append(manifest)
            for entry in entries:
                state.places[entry.data_file.file_path] = manifest.manifest_path
        return TargetState(position, frozenset(map(_name, state.places)), state)

    def commit(self, state: TargetState, step: Step) -> TargetState | None:
        """Publish one snapshot of Iceberg."""
        known: IcebergState = state.detail
        schema = pyarrow_to_schema(self.arrow_schema(step.schema))
        held = known.held or self._create(schema, step)
        changes = (*_schema_updates(held.metadata, schema), *self._spec_updates(held, step))
        metadata = update_table_metadata(held.metadata, changes) if changes else held.metadata
        commit = _SnapshotCommit(held, metadata, known)
        manifests, places = commit.manifests(self._data_files(metadata, step), self._paths(step))
        snapshot = commit.snapshot(step, manifests)
        after = self._place.commit(
            held,
            (
                AssertTableUUID(uuid=held.metadata.table_uuid),
                AssertRefSnapshotId(ref=MAIN_BRANCH, **{"snapshot-id": commit.parent_id}),
            ),
            (
                *changes,
                AddSnapshotUpdate(snapshot=snapshot),
                SetSnapshotRefUpdate(
                    **{
                        "ref-name": MAIN_BRANCH,
                        "snapshot-id": snapshot.snapshot_id,
                        "type": SnapshotRefType.BRANCH,
                    }
                ),
            ),
        )
        if after is None:
            return None
        names = state.copies.difference(step.removed).union(copy.name for copy in step.added)
        return TargetState(step.position, names, IcebergState(after, manifests, places))

    def _create(self, schema: Schema, step: Step) -> HeldTable:
        source = step.position.source
        properties = {
            TABLE: source.table_uuid,
            BRANCH: source.branch,
            "write.parquet.compression-codec": "zstd",
        }
        return self._place.create(schema, PartitionSpec(spec_id=0), properties)

    def _paths(self, step: Step) -> set[str]:
        return {self.store.locate(self.path_of(name)) for name in step.removed}

    def _spec_updates(self, held: HeldTable, step: Step) -> Iterator[TableUpdate]:
        """What makes the partitioning that of the source."""
        metadata = held.metadata
        wanted = [
            (part.source_id, _transform_text(part), name)
            for part, name in self._named_parts(step.schema)
        ]
        for spec in metadata.partition_specs:
            said = [(each.source_id, str(each.transform), each.name) for each in spec.fields]
            if said == wanted:
                if spec.spec_id != metadata.default_spec_id:
                    yield SetDefaultSpecUpdate(**{"spec-id": spec.spec_id})
                return
        last = max(metadata.last_partition_id or 0, PARTITION_ID_FIRST - 1)
        fields = [
            IcebergPartitionField(
                source_id=source, field_id=last + place, transform=parse_transform(text), name=name
            )
            for place, (source, text, name) in enumerate(wanted, 1)
        ]
        number = max(each.spec_id for each in metadata.partition_specs) + 1
        yield AddPartitionSpecUpdate(spec=PartitionSpec(*fields, spec_id=number))
        yield SetDefaultSpecUpdate(**{"spec-id": number})

    def _named_parts(self, schema: TableSchema) -> Iterator[tuple[PartitionField, str]]:
        """The partition fields, with names that no column has but the one they are whole."""
        taken = set(schema.by_name)
        for part in self.partition_by(schema):
            name = part.name
            whole = part.transform == "identity" and schema.by_id[part.source_id].name == name
            while name in taken and not whole:
                name += "_"
            taken.add(name)
            yield part, name

    def _data_files(self, metadata: TableMetadata, step: Step) -> list[DataFile]:
        """The copies as manifests name them."""
        schema, spec = metadata.schema(), metadata.spec()
        chosen = self.partition_by(step.schema)
        statistics = compute_statistics_plan(schema, metadata.properties)
        paths = parquet_path_to_id_mapping(schema)
        files = []
        for copy in step.added:
            told = data_file_statistics_from_parquet_metadata(copy.footer, statistics, paths)
            values = [
                _partition_value(value, step.schema.by_id[part.source_id], part)
                for part, value in zip(step.schema.partition_by, copy.partition, strict=True)
                if part in chosen
            ]
            files.append(
                DataFile.from_args(
                    _table_format_version=_FORMAT_VERSION,
                    content=DataFileContent.DATA,
                    file_path=self.store.locate(copy.path),
                    file_format=FileFormat.PARQUET,
                    partition=Record(*values),
                    file_size_in_bytes=copy.size,
                    sort_order_id=None,
                    spec_id=spec.spec_id,
                    equality_ids=None,
                    key_metadata=None,
                    **told.to_serialized_dict(),
                )
            )
        return files


class _SnapshotCommit:
    """The manifests and the snapshot of one commit.

    held: The table before it.
    metadata: With its schema and partitioning.
    known: The files before it.
    """

    def __init__(self, held: HeldTable, metadata: TableMetadata, known: IcebergState) -> None:
        self._held, self._metadata, self._known = held, metadata, known
        self._parent = held.metadata.current_snapshot()
        self.parent_id = None if self._parent is None else self._parent.snapshot_id
        self._id = metadata.new_snapshot_id()
        self._sequence = metadata.last_sequence_number + 1
        self._folder = f"{metadata.location.rstrip('/')}/metadata"
        self._unique = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._counts = {"added": [0, 0, 0], "deleted": [0, 0, 0]}

    def manifests(
        self, added: Sequence[DataFile], removed: set[str]
    ) -> tuple[list[ManifestFile], dict[str, str]]:
        """Write the manifests that change; all that the snapshot has, and where its files are."""
        touched = {self._known.places[path] for path in removed}
        places = {path: at for path, at in self._known.places.items() if path not in removed}
        kept = [each for each in self._known.manifests if each.manifest_path not in touched]
        rewritten = [each for each in self._known.manifests if each.manifest_path in touched]
        if len(kept) > MANIFESTS_MAX:
            rewritten, kept = [*rewritten, *kept], []
        made: list[ManifestFile] = []
        for spec_id in sorted({each.partition_spec_id for each in rewritten}):
            entries = [
                entry
                for manifest in rewritten
                if manifest.partition_spec_id == spec_id
                for entry in manifest.fetch_manifest_entry(self._held.files)
            ]
            made.append(self._manifest(spec_id, self._changed(entries, removed), places))
        if added:
            self._count("added", added)
            entries = [
                ManifestEntry.from_args(
                    _table_format_version=_FORMAT_VERSION,
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=file,
                )
                for file in added
            ]
            made.insert(0, self._manifest(self._metadata.default_spec_id, entries, places))
        return [*made, *kept], places

    def _changed(
        self, entries: Sequence[ManifestEntry], removed: set[str]
    ) -> Iterator[ManifestEntry]:
        """Entries as a later manifest has them: they exist, or are deleted."""
        gone = [each.data_file for each in entries if each.data_file.file_path in removed]
        self._count("deleted", gone)
        for entry in entries:
            is_gone = entry.data_file.file_path in removed
            status = ManifestEntryStatus.DELETED if is_gone else ManifestEntryStatus.EXISTING
            yield ManifestEntry.from_args(
                _table_format_version=_FORMAT_VERSION,
                status=status,
                snapshot_id=self._id if is_gone else entry.snapshot_id,
                sequence_number=entry.sequence_number,
                file_sequence_number=entry.file_sequence_number,
                data_file=entry.data_file,
            )

    def _manifest(
        self, spec_id: int, entries: Iterable[ManifestEntry], places: dict[str, str]
    ) -> ManifestFile:
        spec = self._metadata.specs()[spec_id]
        path = self._new_path("m")
        with write_manifest(
            format_version=_FORMAT_VERSION,
            spec=spec,
            schema=self._schema_of(spec),
            output_file=self._held.files.new_output(path),
            snapshot_id=self._id,
            avro_compression=_CODEC,
        ) as writer:
            for entry in entries:
                writer.add_entry(entry)
                if entry.status != ManifestEntryStatus.DELETED:
                    places[entry.data_file.file_path] = path
        return writer.to_manifest_file()

    def _schema_of(self, spec: PartitionSpec) -> Schema:
        """A schema that has the columns of a spec: the newest, unless the table was replaced."""
        wanted = {each.source_id for each in spec.fields}
        for schema in (self._metadata.schema(), *reversed(self._metadata.schemas)):
            if wanted <= schema.field_ids:
                return schema
        return self._metadata.schema()

    def _new_path(self, kind: str) -> str:
        return f"{self._folder}/{kind}-{self._unique}-{next(self._numbers)}.avro"

    def _count(self, what: str, files: Sequence[DataFile]) -> None:
        counts = self._counts[what]
        counts[0] += len(files)
        counts[1] += sum(each.record_count for each in files)
        counts[2] += sum(each.file_size_in_bytes for each in files)

    def snapshot(self, step: Step, manifests: Sequence[ManifestFile]) -> Snapshot:
        """Write the manifest list, and name it in a snapshot."""
        path = self._new_path("snap")
        with write_manifest_list(
            format_version=_FORMAT_VERSION,
            output_file=self._held.files.new_output(path),
            snapshot_id=self._id,
            parent_snapshot_id=self.parent_id,
            sequence_number=self._sequence,
            avro_compression=_CODEC,
        ) as writer:
            if manifests:
                writer.add_manifests(list(manifests))
        return Snapshot(
            snapshot_id=self._id,
            parent_snapshot_id=self.parent_id,
            sequence_number=self._sequence,
            manifest_list=path,
            schema_id=self._metadata.current_schema_id,
            summary=self._summary(step),
        )

    def _summary(self, step: Step) -> Summary:
        before = {}
        if self._parent is not None and self._parent.summary is not None:
            before = self._parent.summary.additional_properties
        said: dict[str, str] = {}
        for place, what in enumerate(("data-files", "records", "files-size")):
            plus, minus = self._counts["added"][place], self._counts["deleted"][place]
            gone = "removed" if what == "files-size" else "deleted"
            said |= {f"added-{what}": str(plus)} if plus else {}
            said |= {f"{gone}-{what}": str(minus)} if minus else {}
            said[f"total-{what}"] = str(int(before.get(f"total-{what}", 0)) + plus - minus)
        for name in ("total-delete-files", "total-position-deletes", "total-equality-deletes"):
            said[name] = "0"
        told = properties_of(step.position, step.snapshot)
        return Summary(operation=_OPERATIONS[step.kind], **said, **told)


def _schema_updates(metadata: TableMetadata, schema: Schema) -> Iterator[TableUpdate]:
    """What makes a schema the current one; schemas that were there before are taken again."""
    for known in metadata.schemas:
        if known.as_struct() == schema.as_struct():
            if known.schema_id != metadata.current_schema_id:
                yield SetCurrentSchemaUpdate(**{"schema-id": known.schema_id})
            return
    number = max(each.schema_id for each in metadata.schemas) + 1
    yield AddSchemaUpdate(schema=Schema(*schema.fields, schema_id=number))
    yield SetCurrentSchemaUpdate(**{"schema-id": number})


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _transform_text(part: PartitionField) -> str:
    if part.transform in ("bucket", "truncate"):
        return f"{part.transform}[{part.parameter}]"
    return part.transform


def _has_counterpart(part: PartitionField, schema: TableSchema) -> bool:
    """Whether Iceberg computes the same partition values from the values that it has."""
    dtype = schema.by_id[part.source_id].type
    copied = iceberg_leaf(dtype.value_type if pat.is_dictionary(dtype) else dtype)
    if copied is None or pat.is_floating(copied):
        return False
    if part.transform == "bucket":  # of ticks in their own unit
        same = copied == dtype or not (pat.is_temporal(dtype))
        return same and not pat.is_boolean(copied)
    return part.transform != "truncate" or not pat.is_fixed_size_binary(copied)


def _partition_value(value: Any, field: Field, part: PartitionField) -> Any:
    """A partition value as pyiceberg's manifests take it."""
    if value is None or part.transform not in ("identity", "truncate"):
        return value
    dtype = field.type.value_type if pat.is_dictionary(field.type) else field.type
    if part.transform == "truncate" and pat.is_integer(dtype):
        return value
    scalar = value_codec.decode_value(value, dtype)
    copied = iceberg_leaf(dtype)
    assert copied is not None
    if pat.is_fixed_size_binary(copied):
        return scalar.as_py()
    scalar = scalar.cast(copied)
    return scalar.value if pat.is_temporal(copied) else scalar.as_py()

"""Mirrors beside their source: rows in one spelling, whoever read them, and mirrors that crash."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion_table import Table
from fermion_table.mirrors.publish import Publisher, write_here
from fermion_table.mirrors.registry import target_class
from fermion_table.mirrors.target import MirrorTarget
from fermion_table.storage.location import open_store
from fermion_table.storage.store import AtomicStore
from tests.kit.stores import CrashingStore

SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("v", pa.float64())])


def rows(ids: Iterable[int], kind: str = "a", schema: pa.Schema = SCHEMA) -> pa.Table:
    """Some rows."""
    ids = list(ids)
    return pa.table(
        {"id": ids, "kind": [kind] * len(ids), "v": [number / 2 for number in ids]}, schema=schema
    )


def history(directory: Path | str, **settings: Any) -> Table:
    """A table with every kind of commit."""
    table = Table.create(directory, SCHEMA, durability="fast", **settings)
    table.append(rows(range(10)))
    table.append(rows(range(5, 20), "b"))
    table.delete("id < 3")
    table.compact(full=bool(table.primary_key))
    table.add_columns({"x": pa.int32()})
    table.append(rows(range(30, 33), "c").append_column("x", pa.array([1, None, 3], pa.int32())))
    table.rename_column("v", "w")
    table.drop_columns(["x"])
    table.add_columns({"x": pa.int64()})
    table.update("id = 8", {"w": 1.0})
    table.overwrite(rows([100]).rename_columns(["id", "kind", "w"]), filter="id > 12")
    table.set_properties({"a.note": "no rows change"})
    return table


SETTINGS: list[dict[str, Any]] = [
    {},
    {"partition_by": ["kind"]},
    {"partition_by": ["bucket(2, id)", "kind"]},
    {"primary_key": ["id"], "properties": {"bucket": "2"}},
    {"primary_key": ["id", "kind"], "partition_by": ["kind"]},
]

TYPES = {
    "boolean": pa.array([True, None]),
    "byte": pa.array([-128, 127], pa.int8()),
    "ubyte": pa.array([0, 255], pa.uint8()),
    "ushort": pa.array([0, 65535], pa.uint16()),
    "uint": pa.array([0, 2**32 - 1], pa.uint32()),
    "long": pa.array([-(2**63), 2**63 - 1]),
    "half": pa.array([np.float16(1.5), None], pa.float16()),
    "float": pa.array([float("nan"), -0.0], pa.float32()),
    "text": pa.array(["", "é"], pa.large_string()),
    "view": pa.array(["a", None], pa.string_view()),
    "words": pa.array(["a", "b"]).dictionary_encode(),
    "bytes": pa.array([b"", b"\x00"], pa.large_binary()),
    "fixed": pa.array([b"abc", None], pa.binary(3)),
    "day": pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "day64": pa.array([datetime.date(2020, 2, 29), None], pa.date64()),
    "second": pa.array([datetime.datetime(2020, 1, 1), None], pa.timestamp("s")),
    "zoned": pa.array([datetime.datetime(2020, 1, 1), None], pa.timestamp("ms", "Europe/Rome")),
    "small": pa.array([decimal.Decimal("1.25"), None], pa.decimal32(5, 2)),
    "large": pa.array([decimal.Decimal("-9.9"), None], pa.decimal256(38, 1)),
    "list": pa.array([[1, None], None], pa.large_list(pa.uint8())),
    "three": pa.array([[1, 2, 3], None], pa.list_(pa.int32(), 3)),
    "list_view": pa.array([["a"], []], pa.list_view(pa.string())),
    "struct": pa.array([{"a": 1, "b": [{"c": "x"}]}, None]),
    "map": pa.array([[("k", [1])], None], pa.map_(pa.string(), pa.list_(pa.uint16()))),
}
"""Columns of all types that every target has."""
if int(pa.__version__.split(".")[0]) < 20:  # that of pypaimon does not count bytes of views
    del TYPES["view"], TYPES["list_view"]

ShownRows = list[str]


def shown(rows: pa.Table) -> ShownRows:
    """Rows as text, in an order of their own: what readers spell in their own ways is made one."""
    columns = {
        name: [_plain(value, rows.schema.field(name).type) for value in rows[name].to_pylist()]
        for name in sorted(rows.column_names)
    }
    return sorted(repr(row) for row in zip(*columns.values(), strict=True))


def _plain(value: Any, dtype: pa.DataType) -> Any:
    if value is None:
        return None
    if pat.is_map(dtype):
        pairs = value.items() if isinstance(value, dict) else value
        return sorted(
            (_plain(key, dtype.key_type), _plain(item, dtype.item_type)) for key, item in pairs
        )
    if pat.is_struct(dtype):
        return [(each.name, _plain(value[each.name], each.type)) for each in dtype]
    if isinstance(value, list):
        inside = dtype.value_type
        if pat.is_struct(inside) and [each.name for each in inside] == ["key", "value"]:
            return sorted(  # a map, as Polars has it
                (_plain(each["key"], inside[0].type), _plain(each["value"], inside[1].type))
                for each in value
            )
        return [_plain(each, inside) for each in value]
    if isinstance(value, np.floating):  # half floats of older versions of Arrow
        value = float(value)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if pat.is_timestamp(dtype) and dtype.tz:
        return value.timestamp()
    return value


def source_rows(table: Table, snapshot_id: int) -> ShownRows:
    """What a snapshot of the source shows."""
    return shown(table.scan(snapshot_id=snapshot_id).to_arrow())


def publisher(
    table: Table,
    make: type[MirrorTarget],
    store: AtomicStore,
    *,
    history: bool = True,
) -> Publisher:
    """What brings a mirror in a store up to a table."""
    return Publisher(
        "mirror", table.store, table.branch, make(store), history=history, runner=write_here
    )


class DyingStore(CrashingStore):
    """A store whose process dies at one of its calls, or as it begins to write a file."""

    def locate(self, path: str, *, for_writing: bool = False) -> str:
        """Where an object is; counts if it is to be written."""
        if for_writing:
            self.call("exists", path)
        return super().locate(path, for_writing=for_writing)


def check_mirrors_on_a_storage(folder: str, local: Path, options: Mapping[str, Any]) -> None:
    """Publish mirrors of a remote table beside it, and read them: Delta's files in a local copy.

    Iceberg's metadata names its files by their URLs, which are read through our storage.
    """
    from deltalake import DeltaTable
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.table import Table as IcebergTable

    table = history(f"{folder}/t", storage_options=options)
    stores = {}
    for name in ("delta", "iceberg"):
        table.mirrors.create(name, f"{folder}/{name}")
        stores[name] = open_store(f"{folder}/{name}", storage_options=options)
    table.mirrors.publish()
    table.delete("id = 8")
    for done in table.mirrors.publish():
        assert done.snapshots == (table.snapshot.id,)
        assert done.files_removed == 1
    for item in stores["delta"].list():
        (local / item.path).parent.mkdir(parents=True, exist_ok=True)
        (local / item.path).write_bytes(stores["delta"].read(item.path))
    assert shown(pa.table(DeltaTable(local).to_pyarrow_table())) == shown(table.to_arrow())
    held = target_class("iceberg", "a test")(stores["iceberg"])._place.load()
    found = IcebergTable(("t",), held.metadata, "", held.files, NoopCatalog("none"))
    assert shown(found.scan().to_arrow()) == shown(table.to_arrow())


def parquet_files(directory: Path) -> set[str]:
    """The names of the copies that lie in a mirror, shown or not."""
    return {each.name for each in directory.rglob("*.parquet") if "_delta_log" not in each.parts}


def delta_versions(location: Path) -> Iterator[tuple[int, int, pa.Table]]:
    """The version, the source's snapshot and the rows of all of a Delta table, by its library."""
    import deltalake

    newest = deltalake.DeltaTable(location)
    for commit in newest.history():
        version = deltalake.DeltaTable(location, version=commit["version"])
        found = version.to_pyarrow_table()
        yield commit["version"], int(commit["fermion.snapshot-id"]), pa.table(found)


def iceberg_versions(location: Path) -> Iterator[tuple[int, int, pa.Table]]:
    """The same of an Iceberg table in a directory, by pyiceberg: the number of each snapshot."""
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(newest_metadata(location))
    for number, snapshot in enumerate(table.snapshots()):
        found = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        yield number, int(snapshot.summary["fermion.snapshot-id"]), found


def paimon_versions(location: Path) -> Iterator[tuple[int, int, pa.Table]]:
    """The same of a Paimon table, by pypaimon, each with the schema that it had."""
    from pypaimon.table.file_store_table import FileStoreTable

    table = FileStoreTable.from_path(str(location))
    for snapshot in table.snapshot_manager().list_snapshots():
        version = table.copy({"scan.snapshot-id": str(snapshot.id)})
        builder = version.new_read_builder()
        found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        yield snapshot.id, int(snapshot.properties["fermion.snapshot-id"]), found


def newest_metadata(location: Path) -> str:
    """The metadata file of an Iceberg table in a directory that counts."""
    files = (location / "metadata").glob("v*.metadata.json")
    return str(max(files, key=lambda file: int(file.name[1:].split(".")[0])))


@dataclass(frozen=True)
class Kind:
    """A kind of mirrors, and what reads all versions with the library of its project.

    Attributes
    ----------
    begins
        Files that are there when something was published.
    """

    name: str
    package: str
    versions: Callable[[Path], Iterator[tuple[int, int, pa.Table]]]
    begins: str

    @property
    def target(self) -> type[MirrorTarget]:
        """What publishes it."""
        return target_class(self.name, "a test")

    def found(self, location: Path) -> dict[int, ShownRows]:
        """What the mirror shows, by snapshots of the source; each is there once."""
        if not list(location.glob(self.begins)):
            return {}
        listed = [(number, shown(found)) for _, number, found in self.versions(location)]
        assert len({number for number, _ in listed}) == len(listed)
        return dict(listed)


ALL_KINDS = [
    Kind("delta", "deltalake", delta_versions, "_delta_log/*.json"),
    Kind("iceberg", "pyiceberg", iceberg_versions, "metadata/v*.metadata.json"),
    Kind("paimon", "pypaimon", paimon_versions, "snapshot/snapshot-*"),
]
KINDS = [kind for kind in ALL_KINDS if find_spec(kind.package) is not None]
"""Those whose library is here: pypaimon needs an older pyarrow than the others."""

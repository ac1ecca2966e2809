"""The table layers that replace rows by key, each behind the same few verbs more."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.layers import Delta, FermionTable, LanceTable, Layer, Paimon
from benchmarks.question import NotOffered

KEY = "id"
PART = "part"


@dataclass(frozen=True)
class KeyedLayer(Layer):
    """A table layer whose rows have a key, ``id``; a table with ``part`` is partitioned by it."""

    @abstractmethod
    def upsert(self, table: Any, rows: pa.Table) -> Any:
        """Insert rows, or replace those of their keys; the table as its writer sees it then."""

    @abstractmethod
    def lookup(self, table: Any, keys: Sequence[int]) -> pa.Table:
        """The rows of keys."""

    @abstractmethod
    def select(self, table: Any, columns: Sequence[str], above: float) -> pa.Table:
        """Columns of the rows whose ``price`` is above a value."""

    def compact_fully(self, table: Any) -> None:
        """Leave nothing to merge."""
        self.compact(table)

    def warm_up(self) -> None:
        """Do everything once with a few rows."""
        rows = pa.table({KEY: [1, 2, 3], "price": [0.5, 1.5, 2.5]})
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/table"
            self.create(path, rows.schema)
            table = self.upsert(self.open(path), rows)
            self.upsert(table, rows.slice(0, 2))
            self.read(self.open(path))
            self.lookup(self.open(path), [2, 3])
            self.select(self.open(path), ["price"], 1.0)


@dataclass(frozen=True)
class KeyedFermion(FermionTable, KeyedLayer):
    """Ours. ``settings`` are properties of its tables."""

    settings: tuple[tuple[str, str], ...] = (("bucket", "2"),)

    def create(self, path: str, schema: pa.Schema) -> None:
        from fermion_table import Table

        parts = [PART] if PART in schema.names else []
        Table.create(
            path,
            schema,
            primary_key=[*parts, KEY],
            partition_by=parts,
            properties=dict(self.settings) | ({"bucket": "1"} if parts else {}),
            durability=self.durability,
        )

    def upsert(self, table: Any, rows: pa.Table) -> Any:
        table.upsert(rows)
        return table

    def lookup(self, table: Any, keys: Sequence[int]) -> pa.Table:
        return table.lookup(list(keys))

    def select(self, table: Any, columns: Sequence[str], above: float) -> pa.Table:
        return table.scan(columns=list(columns), filter=f"price > {above}").to_arrow()

    def compact_fully(self, table: Any) -> None:
        table.compact(full=True)


@dataclass(frozen=True)
class KeyedDelta(Delta, KeyedLayer):
    """Delta Lake by delta-rs: ``merge``."""

    def create(self, path: str, schema: pa.Schema) -> None:
        from deltalake import DeltaTable

        DeltaTable.create(path, schema, partition_by=[PART] if PART in schema.names else None)

    def upsert(self, table: Any, rows: pa.Table) -> Any:
        key = [PART, KEY] if PART in rows.column_names else [KEY]
        same = " AND ".join(f"t.{name} = s.{name}" for name in key)
        merge = table.merge(rows, same, source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        return table

    def lookup(self, table: Any, keys: Sequence[int]) -> pa.Table:
        return table.to_pyarrow_dataset().to_table(filter=ds.field(KEY).isin(list(keys)))

    def select(self, table: Any, columns: Sequence[str], above: float) -> pa.Table:
        chosen = ds.field("price") > above
        return table.to_pyarrow_dataset().to_table(columns=list(columns), filter=chosen)


@dataclass(frozen=True)
class KeyedLance(LanceTable, KeyedLayer):
    """Lance: ``merge_insert``, without an index. It has no partitions."""

    def upsert(self, table: Any, rows: pa.Table) -> Any:
        key = [PART, KEY] if PART in rows.column_names else [KEY]
        merge = table.merge_insert(key)
        merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)
        return table

    def lookup(self, table: Any, keys: Sequence[int]) -> pa.Table:
        listed = ", ".join(map(str, keys))
        return table.to_table(filter=f"{KEY} IN ({listed})")

    def select(self, table: Any, columns: Sequence[str], above: float) -> pa.Table:
        return table.to_table(columns=list(columns), filter=f"price > {above}")


@dataclass(frozen=True)
class KeyedPaimon(Paimon, KeyedLayer):
    """Paimon by pypaimon: merge on read. It compacts by its Java engines only."""

    def create(self, path: str, schema: pa.Schema) -> None:
        from pypaimon import CatalogFactory, Schema

        parts = [PART] if PART in schema.names else []
        fields = [pa.field(f.name, f.type, f.name not in (KEY, PART)) for f in schema]
        catalog = CatalogFactory.create({"warehouse": path})
        catalog.create_database("n", True)
        declared = Schema.from_pyarrow_schema(
            pa.schema(fields),
            primary_keys=[*parts, KEY],
            partition_keys=parts,
            options={"bucket": "1" if parts else "2"},
        )
        catalog.create_table("n.t", declared, True)

    def upsert(self, table: Any, rows: pa.Table) -> Any:
        fields = [pa.field(f.name, f.type, f.name not in (KEY, PART)) for f in rows.schema]
        return self.append(table, rows.cast(pa.schema(fields)))

    def lookup(self, table: Any, keys: Sequence[int]) -> pa.Table:
        predicate = table.new_read_builder().new_predicate_builder().is_in(KEY, list(keys))
        return self._filtered(table.new_read_builder(), predicate)

    def select(self, table: Any, columns: Sequence[str], above: float) -> pa.Table:
        builder = table.new_read_builder()
        predicate = builder.new_predicate_builder().greater_than("price", above)
        return self._filtered(builder.with_projection(list(columns)), predicate)

    def _filtered(self, builder: Any, predicate: Any) -> pa.Table:
        builder = builder.with_filter(predicate)
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())


@dataclass(frozen=True)
class RewrittenParquet(KeyedLayer):
    """One Parquet file that each upsert reads and writes whole: no commits and no history."""

    modules: tuple[str, ...] = ("pyarrow.parquet",)
    package: str = "pyarrow"
    reference: bool = True

    def create(self, path: str, schema: pa.Schema) -> None:
        Path(path).mkdir(parents=True)
        pq.write_table(schema.empty_table(), self._file(path), compression="zstd")

    def open(self, path: str, version: int | None = None) -> Any:
        if version is not None:
            raise NotOffered("no earlier versions")
        return path

    def append(self, table: Any, rows: pa.Table) -> Any:
        pq.write_table(
            pa.concat_tables([self.read(table), rows]), self._file(table), compression="zstd"
        )
        return table

    def append_files(self, path: str, parts: Sequence[pa.Table]) -> None:
        raise NotOffered("one file")

    def upsert(self, table: Any, rows: pa.Table) -> Any:
        stored = self.read(table)
        kept = stored.filter(pc.invert(pc.is_in(stored[KEY], rows[KEY].combine_chunks())))
        whole = pa.concat_tables([kept, rows])
        pq.write_table(whole, self._file(table), compression="zstd")
        return table

    def read(self, table: Any) -> pa.Table:
        return pq.read_table(self._file(table))

    def plan(self, table: Any, value: int | None) -> int:
        return 1

    def compact(self, table: Any) -> None:
        """There is one file."""

    def lookup(self, table: Any, keys: Sequence[int]) -> pa.Table:
        return pq.read_table(self._file(table), filters=[(KEY, "in", list(keys))])

    def select(self, table: Any, columns: Sequence[str], above: float) -> pa.Table:
        return pq.read_table(
            self._file(table), columns=list(columns), filters=[("price", ">", above)]
        )

    def _file(self, path: str) -> Path:
        return Path(path) / "rows.parquet"


FULL = KeyedFermion("fermion")
FAST = KeyedFermion("fermion fast", durability="fast")
DELTA = KeyedDelta("deltalake")
LANCE = KeyedLance("lance")
PAIMON = KeyedPaimon("pypaimon (10 % of rows)", reference=True, one_in=10, seconds_max=60)
PARQUET = RewrittenParquet("parquet rewritten")

"""The table layers that compete, each behind the same few verbs. A table is a directory."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.question import Library, NotOffered


@dataclass(frozen=True)
class Layer(Library, ABC):
    """A table layer. ``path`` is a local directory that belongs to one table alone."""

    movable: bool = True  # a copy of the directory is a table too

    @abstractmethod
    def create(self, path: str, schema: pa.Schema) -> None:
        """Make an empty table."""

    @abstractmethod
    def open(self, path: str, version: int | None = None) -> Any:
        """Open afresh; ``version`` counts appends: 50 is the table after the fiftieth."""

    @abstractmethod
    def append(self, table: Any, rows: pa.Table) -> Any:
        """One commit; returns the table as its writer sees it afterwards."""

    @abstractmethod
    def append_files(self, path: str, parts: Sequence[pa.Table]) -> None:
        """One commit of many files, one for each part."""

    @abstractmethod
    def read(self, table: Any) -> pa.Table:
        """All rows."""

    @abstractmethod
    def plan(self, table: Any, value: int | None) -> int:
        """The files to read: of all rows, or of those whose ``id`` is a value. Their number."""

    def compact(self, table: Any) -> None:
        """Make few files of many."""
        raise NotOffered("no compaction")

    def delete(self, table: Any, below: int) -> None:
        """Delete the rows whose ``id`` is below a value."""
        raise NotOffered("no deletion by filter")

    def update(self, table: Any, below: int) -> None:
        """Set ``value`` to 0 where ``id`` is below a value."""
        raise NotOffered("no update by filter")

    def warm_up(self) -> None:
        """Do everything once with a few rows."""
        rows = pa.table({"id": [1, 2, 3], "value": [0.5, 1.5, 2.5], "name": ["a", "b", "c"]})
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/table"
            self.create(path, rows.schema)
            table = self.open(path)
            for _ in range(3):
                table = self.append(table, rows)
            self.plan(self.open(path), 2)
            self.read(self.open(path))
            self.read(self.open(path, 2))
            for change in (
                lambda: self.update(self.open(path), 1),
                lambda: self.delete(self.open(path), 2),
                lambda: self.compact(self.open(path)),
            ):
                with contextlib.suppress(NotOffered):
                    change()


@dataclass(frozen=True)
class FermionTable(Layer):
    """Ours."""

    modules: tuple[str, ...] = ("fermion_table",)
    package: str = "fermion"
    own: bool = True
    durability: Any = "full"
    merged_files: str = ""  # the property `compaction.min.file_num`

    def create(self, path: str, schema: pa.Schema) -> None:
        from fermion_table import Table

        merging = {"compaction.min.file_num": self.merged_files} if self.merged_files else {}
        Table.create(path, schema, properties=merging, durability=self.durability)

    def open(self, path: str, version: int | None = None) -> Any:
        from fermion_table import Table

        return Table.open(path, version=version, durability=self.durability)

    def append(self, table: Any, rows: pa.Table) -> Any:
        table.append(rows)
        return table

    def append_files(self, path: str, parts: Sequence[pa.Table]) -> None:
        table, messages = self.open(path), []
        for part in parts:
            with table.writer() as writer:
                writer.write(part)
                messages += writer.prepare_commit()
        table.commit(messages)

    def read(self, table: Any) -> pa.Table:
        return table.scan().to_arrow()

    def plan(self, table: Any, value: int | None) -> int:
        chosen = None if value is None else f"id = {value}"
        return len(table.scan(filter=chosen).plan().splits)

    def compact(self, table: Any) -> None:
        table.compact()

    def delete(self, table: Any, below: int) -> None:
        table.delete(f"id < {below}")

    def update(self, table: Any, below: int) -> None:
        table.update(f"id < {below}", {"value": 0.0})


@dataclass(frozen=True)
class Delta(Layer):
    """Delta Lake by delta-rs."""

    modules: tuple[str, ...] = ("deltalake",)
    package: str = "deltalake"

    def create(self, path: str, schema: pa.Schema) -> None:
        from deltalake import DeltaTable

        DeltaTable.create(path, schema)

    def open(self, path: str, version: int | None = None) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(path, version=version)

    def append(self, table: Any, rows: pa.Table) -> Any:
        from deltalake import write_deltalake

        write_deltalake(table, rows, mode="append")
        return table

    def append_files(self, path: str, parts: Sequence[pa.Table]) -> None:
        from deltalake.transaction import AddAction

        actions = []
        for name, part in _parquet_files(path, parts):
            bounds = {
                key: {column: function(part[column]).as_py() for column in part.column_names}
                for key, function in (("minValues", pc.min), ("maxValues", pc.max))
            }
            nulls = {column: part[column].null_count for column in part.column_names}
            stats = {"numRecords": part.num_rows, **bounds, "nullCount": nulls}
            size = (Path(path) / name).stat().st_size
            now = time.time_ns() // 1_000_000
            actions.append(AddAction(name, size, {}, now, True, json.dumps(stats)))
        self.open(path).create_write_transaction(actions, "append", parts[0].schema)

    def read(self, table: Any) -> pa.Table:
        return table.to_pyarrow_table()

    def plan(self, table: Any, value: int | None) -> int:
        if value is None:
            return len(table.file_uris())
        return len(list(table.to_pyarrow_dataset().get_fragments(filter=ds.field("id") == value)))

    def compact(self, table: Any) -> None:
        table.optimize.compact()

    def delete(self, table: Any, below: int) -> None:
        table.delete(f"id < {below}")

    def update(self, table: Any, below: int) -> None:
        table.update(updates={"value": "0.0"}, predicate=f"id < {below}")


@dataclass(frozen=True)
class Iceberg(Layer):
    """Iceberg by pyiceberg, with its SQL catalog in SQLite."""

    modules: tuple[str, ...] = ("pyiceberg.catalog.sql",)
    package: str = "pyiceberg"
    movable: bool = False

    def _catalog(self, path: str) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        place = Path(path).resolve()
        return SqlCatalog("c", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")

    def create(self, path: str, schema: pa.Schema) -> None:
        Path(path).mkdir(parents=True)
        catalog = self._catalog(path)
        catalog.create_namespace("n")
        catalog.create_table("n.t", schema=schema)

    def open(self, path: str, version: int | None = None) -> Any:
        table = self._catalog(path).load_table("n.t")
        if version is None:
            return table
        return table, table.snapshots()[version - 1].snapshot_id

    def append(self, table: Any, rows: pa.Table) -> Any:
        table.append(rows)
        return table

    def append_files(self, path: str, parts: Sequence[pa.Table]) -> None:
        place = Path(path).resolve()
        names = [f"file://{place}/{name}" for name, _ in _parquet_files(path, parts)]
        self.open(path).add_files(names)

    def read(self, table: Any) -> pa.Table:
        if isinstance(table, tuple):
            return table[0].scan(snapshot_id=table[1]).to_arrow()
        return table.scan().to_arrow()

    def plan(self, table: Any, value: int | None) -> int:
        scan = table.scan() if value is None else table.scan(row_filter=f"id = {value}")
        return len(list(scan.plan_files()))

    def delete(self, table: Any, below: int) -> None:
        table.delete(f"id < {below}")


@dataclass(frozen=True)
class LanceTable(Layer):
    """Lance data sets, with their versions."""

    modules: tuple[str, ...] = ("lance",)
    package: str = "pylance"

    def create(self, path: str, schema: pa.Schema) -> None:
        import lance

        lance.write_dataset(schema.empty_table(), path)

    def open(self, path: str, version: int | None = None) -> Any:
        import lance

        return lance.dataset(path, version=None if version is None else version + 1)

    def append(self, table: Any, rows: pa.Table) -> Any:
        table.insert(rows)
        return table

    def append_files(self, path: str, parts: Sequence[pa.Table]) -> None:
        import lance

        fragments = [f for part in parts for f in lance.fragment.write_fragments(part, path)]
        version = self.open(path).version
        lance.LanceDataset.commit(path, lance.LanceOperation.Append(fragments), version)

    def read(self, table: Any) -> pa.Table:
        return table.to_table()

    def plan(self, table: Any, value: int | None) -> int:
        if value is not None:  # it prunes while it reads: there is no number of files
            table.scanner(filter=f"id = {value}").explain_plan()
        return len(table.get_fragments())

    def compact(self, table: Any) -> None:
        table.optimize.compact_files()

    def delete(self, table: Any, below: int) -> None:
        table.delete(f"id < {below}")

    def update(self, table: Any, below: int) -> None:
        table.update({"value": "0.0"}, where=f"id < {below}")


@dataclass(frozen=True)
class Paimon(Layer):
    """Paimon by pypaimon, with its file system catalog."""

    modules: tuple[str, ...] = ("pypaimon",)
    package: str = "pypaimon"
    python: str | None = ".venv-bench-paimon"

    def create(self, path: str, schema: pa.Schema) -> None:
        from pypaimon import CatalogFactory, Schema

        catalog = CatalogFactory.create({"warehouse": path})
        catalog.create_database("n", True)
        catalog.create_table("n.t", Schema.from_pyarrow_schema(schema), True)

    def open(self, path: str, version: int | None = None) -> Any:
        from pypaimon import CatalogFactory

        table = CatalogFactory.create({"warehouse": path}).get_table("n.t")
        return table if version is None else table.copy({"scan.snapshot-id": str(version)})

    def append(self, table: Any, rows: pa.Table) -> Any:
        builder = table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(rows)
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()
        return table

    def append_files(self, path: str, parts: Sequence[pa.Table]) -> None:
        builder, messages = self.open(path).new_batch_write_builder(), []
        for part in parts:
            write = builder.new_write()
            write.write_arrow(part)
            messages += write.prepare_commit()
            write.close()
        commit = builder.new_commit()
        commit.commit(messages)
        commit.close()

    def read(self, table: Any) -> pa.Table:
        builder = table.new_read_builder()
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())

    def plan(self, table: Any, value: int | None) -> int:
        builder = table.new_read_builder()
        if value is not None:
            builder = builder.with_filter(builder.new_predicate_builder().equal("id", value))
        return sum(len(split.files) for split in builder.new_scan().plan().splits())


@dataclass(frozen=True)
class DuckLake(Layer):
    """DuckLake, whose catalog is a database that holds the rows of small commits itself.

    catalog: ``sqlite``, or ``postgres``: a server of its own, which waits for the disk, too.
    """

    catalog: str = "sqlite"

    modules: tuple[str, ...] = ("duckdb_ext",)
    package: str = "duckdb-ext-ducklake"
    python: str | None = ".venv-bench-ducklake"
    set_up: str = "make bench-small"
    movable: bool = False

    def create(self, path: str, schema: pa.Schema) -> None:
        Path(path).mkdir()
        connection = self.open(path)
        connection.register("empty", schema.empty_table())
        connection.execute("CREATE TABLE lake.t AS SELECT * FROM empty")

    def open(self, path: str, version: int | None = None) -> Any:
        import duckdb
        import duckdb_ext

        connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        for name in (f"{self.catalog}_scanner", "ducklake"):
            found = Path(duckdb_ext.__file__).parent.glob(f"extensions/*/*/{name}.duckdb_extension")
            connection.execute(f"LOAD '{next(found)}'")
        at = "" if version is None else f", SNAPSHOT_VERSION {version + 1}"
        connection.execute(
            f"ATTACH 'ducklake:{self.catalog}:{self._database(path)}' AS lake "
            f"(DATA_PATH '{path}/data', DATA_INLINING_ROW_LIMIT 100{at})"
        )
        return connection

    def _database(self, path: str) -> str:
        """Where the catalog lies; a server is started, and ends with the process."""
        if self.catalog == "sqlite":
            return f"{path}/catalog.sqlite"
        import pgserver

        return pgserver.get_server(Path(path) / "postgres").get_uri()

    def append(self, table: Any, rows: pa.Table) -> Any:
        table.register("appended", rows)
        table.execute("INSERT INTO lake.t SELECT * FROM appended")
        return table

    def append_files(self, path: str, parts: Sequence[pa.Table]) -> None:
        raise NotOffered("files are written by its own statements")

    def read(self, table: Any) -> pa.Table:
        return table.execute("FROM lake.t").fetch_arrow_table()

    def plan(self, table: Any, value: int | None) -> int:
        return len(table.execute("FROM ducklake_list_files('lake', 't')").fetchall())

    def compact(self, table: Any) -> None:
        table.execute("CALL ducklake_flush_inlined_data('lake')")


def _parquet_files(path: str, parts: Sequence[pa.Table]) -> Iterator[tuple[str, pa.Table]]:
    """Write each part as a Parquet file of its own into the table's directory."""
    for part in parts:
        name = f"part-{uuid.uuid4().hex}.parquet"
        pq.write_table(part, Path(path) / name)
        yield name, part


FULL = FermionTable("fermion")
FAST = FermionTable("fermion fast", durability="fast")
MERGING = FermionTable("fermion merging", durability="fast", merged_files="10")
DELTA = Delta("deltalake")
ICEBERG = Iceberg("pyiceberg")
LANCE_TABLE = LanceTable("lance")
PAIMON = Paimon("pypaimon")
DUCKLAKE = DuckLake("ducklake")
DUCKLAKE_POSTGRES = DuckLake("ducklake postgres", catalog="postgres")

"""The file formats that compete, each behind the same few verbs."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import data
from benchmarks.conditions import Condition
from benchmarks.files import CACHE, edition, made, remove, size_of
from benchmarks.question import Action, Library, NotOffered, Size


@dataclass(frozen=True)
class Format(Library, ABC):
    """A file format. Paths are strings of local files; ``columns=None`` is all of them.

    Libraries are imported where they are used: a process loads its own library alone.
    """

    suffix: str = ""
    file_of: str = ""  # the library whose files this one reads; "": its own

    def write(self, table: Any, path: str) -> None:
        """Write an Arrow table."""
        raise NotOffered("writes no files")

    def open(self, path: str) -> Any:
        """Read what the format reads before it knows the columns; the schema is not asked for."""
        raise NotOffered("opens nothing ahead of a read")

    @abstractmethod
    def read(self, path: str, columns: Sequence[str] | None = None) -> Any:
        """An Arrow table of all rows."""

    def where(self, path: str, condition: Condition, columns: Sequence[str] | None) -> Any:
        """An Arrow table of the rows that meet a condition."""
        raise NotOffered("takes no filter")

    def take(self, path: str, rows: Any, columns: Sequence[str] | None) -> Any:
        """An Arrow table of some rows, by number, ascending."""
        raise NotOffered("takes no row numbers")

    def batches(self, path: str, rows: int) -> Iterator[Any]:
        """Record batches of at most so many rows, of all columns."""
        raise NotOffered("not measured in batches")

    def warm_up(self) -> None:
        """Read two rows, in every way that the format offers."""
        path = self.stored("two-rows", "tiny", data.tiny)
        self.read(path, ["a"])
        for use in (
            lambda: self.where(path, data.in_month("day"), None),
            lambda: self.take(path, data.random_rows(2), None),
        ):
            with contextlib.suppress(NotOffered):
                use()

    def stored(self, name: str, size: Size, table: Any) -> str:
        """The path of a table's file in this format, written once; ``table`` makes the table."""
        label = (
            f"{(self.file_of or self.name).replace(' ', '-')}-{edition(self.package)}{self.suffix}"
        )
        folder = CACHE / size / name
        return str(made(folder, label, lambda path: self.write(table(), str(path))))

    def writing(self, table: Any, size: Size) -> Action:
        """What writes a table that lies in memory, and gives the file's size."""
        path = CACHE / size / f"written{self.suffix}"
        remove(path)

        def written() -> dict[str, int]:
            self.write(table, str(path))
            return {"file_bytes": size_of(path)}

        return written


@dataclass(frozen=True)
class Fermion(Format):
    """Ours, in one of its profiles, read or mapped. Without fsync, as the other libraries write."""

    modules: tuple[str, ...] = ("fermion", "fermion.reading.file", "fermion.writing.file")
    package: str = "fermion"
    suffix: str = ".fmn"
    own: bool = True
    profile: str = "balanced"
    memory_map: bool = False

    def write(self, table: Any, path: str) -> None:
        import fermion

        fermion.write_table(table, path, profile=self.profile, durable=False)

    def open(self, path: str) -> Any:
        import fermion

        return fermion.open(path, options=fermion.ReadOptions(memory_map=self.memory_map))

    def read(self, path: str, columns: Sequence[str] | None = None) -> Any:
        with self.open(path) as file:
            return file.read(columns)

    def where(self, path: str, condition: Condition, columns: Sequence[str] | None) -> Any:
        with self.open(path) as file:
            return file.read(columns, filter=condition.for_fermion())

    def take(self, path: str, rows: Any, columns: Sequence[str] | None) -> Any:
        with self.open(path) as file:
            return file.take(rows, columns=columns)

    def batches(self, path: str, rows: int) -> Iterator[Any]:
        with self.open(path) as file:
            yield from file.iter_batches(batch_size=rows)


@dataclass(frozen=True)
class Parquet(Format):
    """Parquet by pyarrow."""

    modules: tuple[str, ...] = ("pyarrow.parquet",)
    package: str = "pyarrow"
    suffix: str = ".parquet"
    compression: str = "zstd"

    def write(self, table: Any, path: str) -> None:
        import pyarrow.parquet as pq

        pq.write_table(table, path, compression=self.compression)

    def open(self, path: str) -> Any:
        import pyarrow.parquet as pq

        return pq.ParquetFile(path)

    def read(self, path: str, columns: Sequence[str] | None = None) -> Any:
        import pyarrow.parquet as pq

        return pq.read_table(path, columns=columns)

    def where(self, path: str, condition: Condition, columns: Sequence[str] | None) -> Any:
        import pyarrow.parquet as pq

        return pq.read_table(path, columns=columns, filters=condition.for_arrow())

    def take(self, path: str, rows: Any, columns: Sequence[str] | None) -> Any:
        import pyarrow.dataset as ds

        return ds.dataset(path).take(rows, columns=columns)

    def batches(self, path: str, rows: int) -> Iterator[Any]:
        yield from self.open(path).iter_batches(rows)


@dataclass(frozen=True)
class PolarsParquet(Parquet):
    """Polars reading the Parquet file that pyarrow wrote, handed over as Arrow."""

    modules: tuple[str, ...] = ("polars", "pyarrow.parquet")
    package: str = "polars"

    def read(self, path: str, columns: Sequence[str] | None = None) -> Any:
        import polars as pl

        frame = pl.scan_parquet(path)
        return _arrow(frame if columns is None else frame.select(columns))

    def open(self, path: str) -> Any:
        raise NotOffered("opens nothing ahead of a read")

    def where(self, path: str, condition: Condition, columns: Sequence[str] | None) -> Any:
        import polars as pl

        frame = pl.scan_parquet(path).filter(condition.for_polars())
        return _arrow(frame if columns is None else frame.select(columns))

    def take(self, path: str, rows: Any, columns: Sequence[str] | None) -> Any:
        raise NotOffered("takes no row numbers without reading the column")


def _arrow(frame: Any) -> Any:
    """Collected, with strings as Arrow strings and not as views."""
    import polars as pl

    return frame.collect().to_arrow(compat_level=pl.CompatLevel.oldest())


@dataclass(frozen=True)
class DuckDBParquet(Parquet):
    """DuckDB reading the Parquet file that pyarrow wrote, handed over as Arrow."""

    modules: tuple[str, ...] = ("duckdb", "pyarrow.parquet")
    package: str = "duckdb"

    def read(self, path: str, columns: Sequence[str] | None = None) -> Any:
        return self._rows(path, columns, "")

    def open(self, path: str) -> Any:
        raise NotOffered("opens nothing ahead of a read")

    def where(self, path: str, condition: Condition, columns: Sequence[str] | None) -> Any:
        return self._rows(path, columns, f" WHERE {condition.in_sql()}")

    def take(self, path: str, rows: Any, columns: Sequence[str] | None) -> Any:
        raise NotOffered("takes no row numbers without reading the column")

    def _rows(self, path: str, columns: Sequence[str] | None, condition: str) -> Any:
        import duckdb

        listed = "*" if columns is None else ", ".join(columns)
        return duckdb.sql(
            f"SELECT {listed} FROM read_parquet('{path}'){condition}"
        ).to_arrow_table()


@dataclass(frozen=True)
class Orc(Format):
    """ORC by pyarrow, compressed with zstd."""

    modules: tuple[str, ...] = ("pyarrow.orc",)
    package: str = "pyarrow"
    suffix: str = ".orc"

    def write(self, table: Any, path: str) -> None:
        import pyarrow.orc as orc

        orc.write_table(table, path, compression="zstd")

    def open(self, path: str) -> Any:
        import pyarrow.orc as orc

        return orc.ORCFile(path)

    def read(self, path: str, columns: Sequence[str] | None = None) -> Any:
        import pyarrow.orc as orc

        return orc.ORCFile(path).read(columns=columns)


@dataclass(frozen=True)
class Feather(Format):
    """Feather (Arrow IPC) with LZ4, as pyarrow writes it; ``plain`` without compression."""

    modules: tuple[str, ...] = ("pyarrow.feather",)
    package: str = "pyarrow"
    suffix: str = ".feather"
    compression: str = "lz4"

    def write(self, table: Any, path: str) -> None:
        import pyarrow.feather as feather

        feather.write_feather(table, path, compression=self.compression)

    def open(self, path: str) -> Any:
        import pyarrow as pa

        return pa.ipc.open_file(path)

    def read(self, path: str, columns: Sequence[str] | None = None) -> Any:
        import pyarrow.feather as feather

        return feather.read_table(path, columns=columns, memory_map=False)


@dataclass(frozen=True)
class Vortex(Format):
    """Vortex. ``strings`` turns its string views into strings, as the others give."""

    modules: tuple[str, ...] = ("vortex",)
    package: str = "vortex-data"
    suffix: str = ".vortex"
    compact: bool = False
    memory_map: bool = False
    strings: bool = False

    def write(self, table: Any, path: str) -> None:
        import vortex.io

        options = vortex.io.VortexWriteOptions
        (options.compact() if self.compact else options.default()).write(table, path)

    def open(self, path: str) -> Any:
        import vortex

        return vortex.open(path, memory_map=self.memory_map)

    def read(self, path: str, columns: Sequence[str] | None = None) -> Any:
        file = self.open(path)
        return file.to_arrow(_listed(columns), schema=self._schema(file, columns)).read_all()

    def where(self, path: str, condition: Condition, columns: Sequence[str] | None) -> Any:
        file = self.open(path)
        schema, chosen = self._schema(file, columns), condition.for_vortex()
        return file.to_arrow(_listed(columns), expr=chosen, schema=schema).read_all()

    def take(self, path: str, rows: Any, columns: Sequence[str] | None) -> Any:
        import pyarrow as pa
        import vortex

        indices = vortex.array(pa.array(rows, pa.uint64()))
        file = self.open(path)
        schema = self._schema(file, columns)
        return file.to_arrow(_listed(columns), indices=indices, schema=schema).read_all()

    def batches(self, path: str, rows: int) -> Iterator[Any]:
        yield from self.open(path).to_arrow(batch_size=rows)

    def _schema(self, file: Any, columns: Sequence[str] | None) -> Any:
        """What to ask for; None: whatever Vortex likes best, which for strings is views."""
        import pyarrow as pa

        if not self.strings:
            return None
        fields = file.dtype.to_arrow_schema()
        chosen = fields if columns is None else [fields.field(name) for name in columns]
        strings = [
            pa.field(f.name, pa.string() if f.type == pa.string_view() else f.type, f.nullable)
            for f in chosen
        ]
        return pa.schema(strings)


def _listed(columns: Sequence[str] | None) -> list[str] | None:
    return None if columns is None else list(columns)


@dataclass(frozen=True)
class Lance(Format):
    """Lance data sets of one version."""

    modules: tuple[str, ...] = ("lance",)
    package: str = "pylance"
    suffix: str = ".lance"

    def write(self, table: Any, path: str) -> None:
        import lance

        lance.write_dataset(table, path)

    def open(self, path: str) -> Any:
        import lance

        return lance.dataset(path)

    def read(self, path: str, columns: Sequence[str] | None = None) -> Any:
        return self.open(path).to_table(columns=columns)

    def where(self, path: str, condition: Condition, columns: Sequence[str] | None) -> Any:
        return self.open(path).to_table(columns=columns, filter=condition.in_sql())

    def take(self, path: str, rows: Any, columns: Sequence[str] | None) -> Any:
        return self.open(path).take(rows.tolist(), columns=columns)

    def batches(self, path: str, rows: int) -> Iterator[Any]:
        yield from self.open(path).to_batches(batch_size=rows)


FERMION = Fermion("fermion")
FERMION_COMPACT = Fermion("fermion compact", profile="compact")
FERMION_RANDOM = Fermion("fermion random", profile="random")
FERMION_MAPPED = Fermion("fermion mapped", memory_map=True, file_of="fermion")
PARQUET_ZSTD = Parquet("parquet zstd")
PARQUET_SNAPPY = Parquet("parquet snappy", compression="snappy")
POLARS = PolarsParquet("polars parquet")
DUCKDB = DuckDBParquet("duckdb parquet")
ORC = Orc("orc")
FEATHER = Feather("feather")
ARROW = Feather("arrow", compression="uncompressed", suffix=".arrow", reference=True)
VORTEX = Vortex("vortex")
VORTEX_STRINGS = Vortex("vortex strings", strings=True, file_of="vortex")
VORTEX_MAPPED = Vortex("vortex mapped", memory_map=True, file_of="vortex")
VORTEX_COMPACT = Vortex("vortex compact", compact=True)
LANCE = Lance("lance")

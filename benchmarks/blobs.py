"""What large values cost in tables: many of them, a range of one, append, compaction."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import data, harness
from benchmarks.files import CACHE, edition, made, remove, size_of
from benchmarks.question import Action, Case, Library, NotOffered, Question, Size, Target
from benchmarks.slow_store import slow_file_system

ROWS = {"full": 4_000, "quick": 400, "tiny": 8}
TAKEN = {"full": 1_000, "quick": 100, "tiny": 4}
VALUE_BYTES = {"full": 100_000, "quick": 100_000, "tiny": 10_000}
LARGE_BYTES = {"full": 100_000_000, "quick": 10_000_000, "tiny": 100_000}
RANGE_BYTES = 65_536
APPENDS = 8


def batches(rows: int, value_bytes: int) -> Iterator[pa.RecordBatch]:
    """Random bytes, as images are to a compressor, 64 values at a time."""
    random = np.random.default_rng(data.SEED)
    for start in range(0, rows, 64):
        ids = range(start, min(start + 64, rows))
        values = [random.bytes(value_bytes) for _ in ids]
        yield pa.record_batch({"id": list(ids), "image": pa.array(values, pa.large_binary())})


@dataclass(frozen=True)
class Blobs(Library, ABC):
    """A table of large values. Paths are strings; what is read is opened first."""

    suffix: str = ""

    @abstractmethod
    def append(self, path: str, rows: Iterator[pa.RecordBatch]) -> None:
        """Make a table, or append to it."""

    @abstractmethod
    def values(self, path: str, rows: np.ndarray) -> tuple[int, dict[str, Any]]:
        """Read the values of some rows: their bytes, and further metrics."""

    @abstractmethod
    def range(self, path: str, start: int, length: int) -> tuple[int, dict[str, Any]]:
        """The same of a range of the value of the first row."""

    def warm_up(self) -> None:
        """Write few values, and read them."""
        with TemporaryDirectory() as folder:
            path = f"{folder}/small{self.suffix}"
            self.append(path, batches(4, 10_000))
            self.values(path, np.arange(2))
            self.range(path, 5, 5)

    def remote(self, path: str) -> str:
        """A path that is read behind the slow store."""
        raise NotOffered("brings a store of its own, which this one cannot slow")

    def compact(self, path: str) -> None:
        """Make few files of many."""
        raise NotOffered("has no compaction")

    def stored(self, name: str, size: Size, rows: int, value_bytes: int) -> str:
        """The path of a table, written once."""
        label = f"{self.name.replace(' ', '-')}-{edition(self.package)}{self.suffix}"

        def make(path: Path) -> None:
            self.append(str(path), batches(rows, value_bytes))

        return str(made(CACHE / size / name, label, make))


class FermionBlobs(Blobs):
    """Our tables. Without fsync, as the others write."""

    def append(self, path: str, rows: Iterator[pa.RecordBatch]) -> None:
        from fermion_table import Table

        image = pa.field("image", pa.large_binary(), metadata={"fermion:blob": "true"})
        schema = pa.schema([pa.field("id", pa.int64()), image])
        exists = Table.exists(path)
        table = (
            Table.open(path, durability="fast")
            if exists
            else Table.create(path, schema, durability="fast")
        )
        table.append(pa.RecordBatchReader.from_batches(schema, rows))

    def values(self, path: str, rows: np.ndarray) -> tuple[int, dict[str, Any]]:
        from fermion_table import Table

        taken = Table.open(path).scan(columns=["image"]).take(rows)
        return taken["image"].nbytes, {"rows": taken.num_rows}

    def range(self, path: str, start: int, length: int) -> tuple[int, dict[str, Any]]:
        from fermion_table import Table

        scan = Table.open(path).scan(columns=["image"], blobs="handles", limit=1)
        return len(scan.to_arrow()["image"][0].as_py().read(start, length)), {}

    def remote(self, path: str) -> str:
        return f"slow://{path}"

    def compact(self, path: str) -> None:
        from fermion_table import Table

        Table.open(path, durability="fast").compact()


class LanceBlobs(Blobs):
    """Lance's blob v2, read by what its documentation has for whole values and for ranges."""

    def append(self, path: str, rows: Iterator[pa.RecordBatch]) -> None:
        import lance

        schema = pa.schema([pa.field("id", pa.int64()), lance.blob_field("image")])
        made = (
            pa.record_batch(
                [each["id"], lance.blob_array(each["image"].to_pylist())], schema=schema
            )
            for each in rows
        )
        reader = pa.RecordBatchReader.from_batches(schema, made)
        mode = "append" if os.path.exists(path) else "create"
        lance.write_dataset(reader, path, mode=mode, data_storage_version="2.2")

    def values(self, path: str, rows: np.ndarray) -> tuple[int, dict[str, Any]]:
        import lance

        found = lance.dataset(path)
        read = found.read_blobs("image", indices=rows.tolist())
        return sum(len(value) for _, value in read), {"rows": len(read), **_requests(found)}

    def range(self, path: str, start: int, length: int) -> tuple[int, dict[str, Any]]:
        import lance

        found = lance.dataset(path)
        (blob,) = found.take_blobs("image", indices=[0])
        return len(blob.read_range(start, length)), _requests(found)

    def compact(self, path: str) -> None:
        import lance

        lance.dataset(path).optimize.compact_files()


class ParquetBlobs(Blobs):
    """One Parquet file without compression, of row groups of 64 rows."""

    def append(self, path: str, rows: Iterator[pa.RecordBatch]) -> None:
        import pyarrow.parquet as pq

        if os.path.exists(path):
            raise NotOffered("is not appended to")
        schema = pa.schema({"id": pa.int64(), "image": pa.large_binary()})
        with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
            for each in rows:
                writer.write_batch(each)

    def values(self, path: str, rows: np.ndarray) -> tuple[int, dict[str, Any]]:
        import pyarrow.compute as pc

        with self._open(path) as file:
            taken = 0
            for group in np.unique(rows // 64).tolist():
                here = pa.array(rows[rows // 64 == group] - 64 * group)
                column = file.read_row_group(group, columns=["image"])["image"]
                taken += pc.sum(pc.binary_length(column.take(here))).as_py()
        return taken, {"rows": len(rows)}

    def range(self, path: str, start: int, length: int) -> tuple[int, dict[str, Any]]:
        with self._open(path) as file:
            value = file.read_row_group(0, columns=["image"])["image"][0].as_buffer()
            return len(value[start : start + length]), {}

    def remote(self, path: str) -> str:
        return f"slow://{path}"

    def _open(self, path: str) -> Any:
        import pyarrow.parquet as pq

        local = path.removeprefix("slow://")
        return pq.ParquetFile(local, filesystem=slow_file_system() if local != path else None)


def _requests(found: Any) -> dict[str, int]:
    """What Lance says of its own requests."""
    stats = found.io_stats_incremental()
    return {"requests": stats.read_iops, "read_bytes": stats.read_bytes}


def some_values(*, is_remote: bool = False) -> Case:
    """Open a table and read values of random rows."""

    def prepare(library: Blobs, size: Size) -> Action:
        path = library.stored("blobs", size, ROWS[size], VALUE_BYTES[size])
        rows = data.random_rows(ROWS[size], TAKEN[size])
        if is_remote:
            path = library.remote(path)
        return counted(lambda: library.values(path, rows), TAKEN[size] * VALUE_BYTES[size])

    return Case(prepare, calls=3)


def a_range(*, is_remote: bool = False) -> Case:
    """Open a table and read a part of a value."""

    def prepare(library: Blobs, size: Size) -> Action:
        path = library.stored("large-blob", size, 1, LARGE_BYTES[size])
        if is_remote:
            path = library.remote(path)
        start = LARGE_BYTES[size] // 3
        return counted(lambda: library.range(path, start, RANGE_BYTES), RANGE_BYTES)

    return Case(prepare, calls=3)


def counted(read: Callable[[], tuple[int, dict[str, Any]]], wanted: int) -> Action:
    """Read something, with what the slow store counts of it."""
    store = slow_file_system()

    def timed() -> dict[str, Any]:
        before = store.requests, store.rounds, store.bytes_read
        found, metrics = read()
        if found < wanted:
            raise ValueError(f"expected {wanted} bytes, found {found}")
        now = store.requests, store.rounds, store.bytes_read
        if now != before:
            names = ("requests", "rounds", "read_bytes")
            metrics |= dict(
                zip(names, (b - a for a, b in zip(before, now, strict=True)), strict=True)
            )
        return metrics

    return timed


def append(library: Blobs, size: Size) -> Action:
    """Write all values to a new table."""
    path = CACHE / size / f"appended-{library.name.replace(' ', '-')}{library.suffix}"
    rows = list(batches(ROWS[size], VALUE_BYTES[size]))
    remove(path)

    def timed() -> dict[str, int]:
        library.append(str(path), iter(rows))
        return {"written_bytes": size_of(path)}

    return timed


def compact(library: Blobs, size: Size) -> Action:
    """Compact a table of several appends; what it wrote lies beside what was there."""
    path = CACHE / size / f"compacted-{library.name.replace(' ', '-')}{library.suffix}"
    remove(path)
    for _ in range(APPENDS):
        library.append(str(path), batches(ROWS[size] // APPENDS, VALUE_BYTES[size]))
    before = size_of(path)

    def timed() -> dict[str, float]:
        library.compact(str(path))
        written = size_of(path) - before
        return {"written_bytes": written, "written_percent": round(100 * written / before, 3)}

    return timed


VALUES, RANGE = "1,000 values of 100 kB", "64 kB of a value of 100 MB"
APPEND, COMPACT = "append 400 MB", "compact 8 files"
BEHIND = "behind 20 ms"
LANCE = LanceBlobs("lance blob v2", ("lance",), "pylance", suffix=".lance")
QUESTION = Question(
    module="benchmarks.blobs",
    title="Large values in tables: random ones, a range of one, append, compaction",
    cases={
        VALUES: some_values(),
        RANGE: a_range(),
        APPEND: Case(append),
        COMPACT: Case(compact),
        f"{VALUES}, {BEHIND}": some_values(is_remote=True),
        f"{RANGE}, {BEHIND}": a_range(is_remote=True),
    },
    libraries=(
        FermionBlobs("fermion", ("fermion", "fermion_table"), "fermion", own=True),
        LANCE,
        ParquetBlobs("parquet", ("pyarrow.parquet",), "pyarrow", suffix=".parquet"),
    ),
    targets=(
        Target(VALUES, 1.0, of=LANCE.name),
        Target(APPEND, 1.0, of=LANCE.name),
        Target(f"{RANGE}, {BEHIND}", 1_100_000, metric="read_bytes"),
        Target(COMPACT, 1.0, metric="written_percent"),
    ),
    rounds={"full": 3},
    metrics=("requests", "rounds", "read_bytes", "written_bytes", "written_percent"),
    notes="Opening the table is part of it. Values are random bytes. Lance counts its requests, "
    "and brings a store that cannot be slowed. Parquet reads row groups of 64 values.",
)

if __name__ == "__main__":
    harness.main(QUESTION)

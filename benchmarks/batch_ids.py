"""Target 9: one of 100,000 batches of ten rows, by its id."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import data, harness
from benchmarks.files import CACHE, edition, made
from benchmarks.formats import FERMION, LANCE, PARQUET_ZSTD, VORTEX, Format
from benchmarks.question import Action, Case, Library, Question, Size, Target

BATCHES = {"full": 100_000, "quick": 10_000, "tiny": 50}
CALLS = 20

Lookup = Callable[[int], Any]


@dataclass(frozen=True)
class Batches(Library, ABC):
    """A format that finds batches by id.

    Attributes
    ----------
    format
        Whose files.
    """

    format: Format = FERMION

    def warm_up(self) -> None:
        self.format.warm_up()

    def write(self, table: Any, path: str) -> None:
        """Write the batches so that they are found fast."""
        self.format.write(table, path)

    @abstractmethod
    def lookup(self, path: str) -> Lookup:
        """Open the file; return what finds one batch."""

    def stored(self, size: Size) -> str:
        """The file."""
        folder = CACHE / size / "batches"
        label = f"{self.name.replace(' ', '-')}-{edition(self.package)}{self.format.suffix}"
        count = BATCHES[size]
        return str(made(folder, label, lambda path: self.write(data.batches(count), str(path))))


class FermionBatches(Batches):
    """A file in batch mode."""

    def write(self, table: Any, path: str) -> None:
        import fermion

        rows = table.drop_columns(["batch_id"])
        options = fermion.WriteOptions(durable=False)
        with fermion.Writer(path, rows.schema, options=options) as writer:
            for number, batch in enumerate(rows.to_batches(max_chunksize=10)):
                writer.append_batch(number, batch)

    def lookup(self, path: str) -> Lookup:
        import fermion

        return fermion.open(path).read_batch


class VortexBatches(Batches):
    """A filter on the id's column, which is sorted."""

    def lookup(self, path: str) -> Lookup:
        import vortex.expr as ve

        file = self.format.open(path)
        names = ["id", "value", "name"]
        return lambda number: file.to_arrow(names, expr=ve.column("batch_id") == number).read_all()


class LanceBatches(Batches):
    """A filter on the id's column, which has a scalar index."""

    def write(self, table: Any, path: str) -> None:
        import lance

        lance.write_dataset(table, path).create_scalar_index("batch_id", "BTREE")

    def lookup(self, path: str) -> Lookup:
        dataset = self.format.open(path)
        names = ["id", "value", "name"]
        return lambda number: dataset.to_table(columns=names, filter=f"batch_id = {number}")


class ParquetBatches(Batches):
    """A filter on the id's column, which is sorted, with statistics per row group."""

    def lookup(self, path: str) -> Lookup:
        import pyarrow.parquet as pq

        names = ["id", "value", "name"]
        key = "batch_id"
        return lambda number: pq.read_table(path, columns=names, filters=[(key, "=", number)])


def wanted(size: Size) -> list[int]:
    """Ids in random order."""
    return np.random.default_rng(data.SEED).integers(0, BATCHES[size], CALLS + 1).tolist()


def warm(library: Batches, size: Size) -> Action:
    """The file is open, and one other batch was read."""
    lookup = library.lookup(library.stored(size))
    ids = iter(wanted(size))
    lookup(next(ids))
    return lambda: lookup(next(ids))


def cold(library: Batches, size: Size) -> Action:
    """Open the file and read one batch."""
    path = library.stored(size)
    ids = iter(wanted(size))
    return lambda: library.lookup(path)(next(ids))


QUESTION = Question(
    module="benchmarks.batch_ids",
    title="9  100,000 batches of 10 rows: one by its id",
    cases={"warm": Case(warm, calls=CALLS), "open and read": Case(cold, calls=5)},
    libraries=(
        FermionBatches("fermion", FERMION.modules, "fermion", own=True, format=FERMION),
        VortexBatches("vortex", VORTEX.modules, "vortex-data", format=VORTEX),
        LanceBatches("lance indexed", LANCE.modules, "pylance", format=LANCE),
        ParquetBatches("parquet zstd", PARQUET_ZSTD.modules, "pyarrow", format=PARQUET_ZSTD),
    ),
    targets=(Target("warm", 0.001), Target("open and read", 0.005)),
)

if __name__ == "__main__":
    harness.main(QUESTION)

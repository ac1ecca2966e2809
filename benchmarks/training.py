"""Training: shuffled batches of ten of a wide table's columns, an epoch and the first batch.

Each library reads as its documentation recommends for data that does not fit into memory. Hugging
Face streams Parquet files with a shuffle buffer; LanceDB's StreamingDataset takes rows by number;
MosaicML's reads its own copy of the data, in MDS files, row by row; both in a DataLoader of
PyTorch. pyarrow reads whole files in random order, and shuffles each. ``make bench-training`` sets
up an environment for MosaicML and LanceDB, as the former wants an older NumPy than others.

The case "order" tells how well rows are mixed. ``neighbours`` is the distance in the table of rows
that come one after the other, 1 where they are drawn from all rows; ``one_block`` is the share of a
batch that comes from one block of 1,000 rows of the table, the largest share in each batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import harness
from benchmarks.files import CACHE, edition, made, size_of
from benchmarks.question import Action, Case, Library, Question, Size, Target

BATCH_ROWS = 1_024
ROW = "row"
IN_ENVIRONMENT: dict[str, Any] = {
    "python": ".venv-bench-training",
    "set_up": "make bench-training",
    "seconds_max": 7_200,  # they make batches of single rows
}
BUFFER_ROWS = 100_000
"""Of Hugging Face's shuffle buffer: as much memory as it is usually given."""
SHAPES = {"full": (100, 10_000, 1_000), "quick": (10, 10_000, 1_000), "tiny": (2, 500, 12)}
"""Files, rows of a file, columns."""

Batches = Iterator[dict[str, np.ndarray]]


def wanted(size: Size) -> list[str]:
    """Ten columns, spread over the table."""
    columns = SHAPES[size][2]
    return [f"f_{index * columns // 10:04}" for index in range(10)]


def tables(size: Size) -> Iterator[pa.Table]:
    """The table, file by file: numbers of rows, and measurements of two decimals."""
    files, rows, columns = SHAPES[size]
    for number in range(files):
        random = np.random.default_rng(number)
        yield pa.table(
            {
                ROW: np.arange(number * rows, (number + 1) * rows),
                **{
                    f"f_{index:04}": np.round(random.normal(index % 100, 10, rows), 2).astype("f4")
                    for index in range(columns)
                },
            }
        )


class Trained(Library, ABC):
    """What trains from files of its own."""

    def warm_up(self) -> None:
        """Read the smallest table."""
        next(self.batches(self.stored("tiny"), wanted("tiny")))

    @abstractmethod
    def write(self, path: Path, size: Size) -> None:
        """Write the table."""

    @abstractmethod
    def batches(self, path: Path, columns: Sequence[str]) -> Batches:
        """One epoch."""

    def stored(self, size: Size) -> Path:
        """The table's files, written once."""
        package = "fermion" if self.own else self.package
        name = f"{self.name.replace(' ', '-')}-{edition(package)}-{size}"
        return made(CACHE / "training-rows", name, lambda draft: self.write(draft, size))


class Fermion(Trained):
    """`Scan.training` over a table of one file an append."""

    def write(self, path: Path, size: Size) -> None:
        """Write the table."""
        from fermion_table import Table

        rows = tables(size)
        table = Table.create(path, next(rows))
        for each in rows:
            table.append(each)

    def batches(self, path: Path, columns: Sequence[str]) -> Batches:
        """One epoch."""
        from fermion_table import Table

        reader = Table.open(path).scan(columns=columns).training(batch_rows=BATCH_ROWS)
        for batch in reader.epoch(0):
            yield {name: batch[name] for name in columns}


class Parquet(Trained):
    """Whole files in random order, the rows of each shuffled: no more than pyarrow offers."""

    def write(self, path: Path, size: Size) -> None:
        """Write the table."""
        path.mkdir()
        for number, each in enumerate(tables(size)):
            pq.write_table(each, path / f"{number:03}.parquet", compression="zstd")

    def batches(self, path: Path, columns: Sequence[str]) -> Batches:
        """One epoch."""
        random = np.random.default_rng(0)
        files = sorted(path.glob("*.parquet"))
        for number in random.permutation(len(files)):
            rows = pq.read_table(files[number], columns=list(columns))
            rows = rows.take(random.permutation(rows.num_rows))
            arrays = {name: rows[name].to_numpy() for name in columns}
            for start in range(0, rows.num_rows, BATCH_ROWS):
                yield {name: each[start : start + BATCH_ROWS] for name, each in arrays.items()}


class HuggingFace(Parquet):
    """Streams of Parquet files through a shuffle buffer."""

    def batches(self, path: Path, columns: Sequence[str]) -> Batches:
        """One epoch."""
        import datasets

        files = [str(each) for each in sorted(path.glob("*.parquet"))]
        rows = datasets.load_dataset(
            "parquet", data_files=files, split="train", streaming=True, columns=list(columns)
        )
        shuffled = rows.shuffle(seed=0, buffer_size=BUFFER_ROWS).with_format("numpy")
        yield from shuffled.iter(batch_size=BATCH_ROWS)


class OfTorch(Trained):
    """Datasets of PyTorch in an environment of their own."""

    def loaded(self, dataset: Any) -> Batches:
        """Batches of a DataLoader, as it makes them of rows."""
        from torch.utils.data import DataLoader

        for batch in DataLoader(dataset, batch_size=BATCH_ROWS):
            yield {name: values.numpy() for name, values in batch.items()}


class LanceDB(OfTorch):
    """`lancedb.streaming.StreamingDataset`: a permutation of all rows, taken by number."""

    def write(self, path: Path, size: Size) -> None:
        """Write the table."""
        import lancedb

        database, rows = lancedb.connect(path), tables(size)
        table = database.create_table("t", next(rows))
        for each in rows:
            table.add(each)

    def batches(self, path: Path, columns: Sequence[str]) -> Batches:
        """One epoch."""
        import lancedb
        from lancedb.streaming import StreamingDataset

        table = lancedb.connect(path).open_table("t")
        yield from self.loaded(StreamingDataset(table, columns=list(columns), shuffle_seed=0))


class MosaicML(OfTorch):
    """MosaicML's `StreamingDataset` over MDS files; a row has its number and one array."""

    def write(self, path: Path, size: Size) -> None:
        """Write the rows."""
        from streaming import MDSWriter

        kinds = {ROW: "int", "f": f"ndarray:float32:{SHAPES[size][2]}"}
        with MDSWriter(out=str(path), columns=kinds) as writer:
            for each in tables(size):
                matrix = np.stack([each[name].to_numpy() for name in each.column_names[1:]], axis=1)
                for number, features in zip(each[ROW].to_pylist(), matrix, strict=True):
                    writer.write({ROW: number, "f": np.ascontiguousarray(features)})

    def batches(self, path: Path, columns: Sequence[str]) -> Batches:
        """One epoch."""
        from streaming import StreamingDataset

        dataset = StreamingDataset(local=str(path), shuffle=True, batch_size=BATCH_ROWS)
        for batch in self.loaded(dataset):
            features = batch["f"]
            yield {
                name: batch[ROW] if name == ROW else features[:, int(name[2:])] for name in columns
            }


def epoch(library: Trained, size: Size) -> Action:
    """Open the table and take all batches of an epoch."""
    path = library.stored(size)

    def taken() -> dict[str, int]:
        batches = library.batches(path, wanted(size))
        rows = sum(len(batch[wanted(size)[0]]) for batch in batches)
        files, rows_of_file, _ = SHAPES[size]
        assert rows == files * rows_of_file
        return {"rows": rows, "file_bytes": size_of(path)}

    return taken


def first_batch(library: Trained, size: Size) -> Action:
    """Open the table and take one batch."""
    path = library.stored(size)

    def taken() -> dict[str, int]:
        return {"rows": len(next(library.batches(path, wanted(size)))[wanted(size)[0]])}

    return taken


def order(library: Trained, size: Size) -> Action:
    """Take the numbers of all rows of an epoch, and tell how well they are mixed."""
    path = library.stored(size)

    def taken() -> dict[str, float]:
        batches = [batch[ROW] for batch in library.batches(path, [ROW])]
        rows = np.concatenate(batches).astype(np.int64)
        blocks = [np.bincount(batch.astype(np.int64) // 1_000).max() for batch in batches]
        shares = [block / len(batch) for block, batch in zip(blocks, batches, strict=True)]
        return {
            "rows": len(rows),
            "neighbours": float(np.abs(np.diff(rows)).mean() * 3 / len(rows)),
            "one_block": float(np.mean(shares)),
        }

    return taken


FERMION = Fermion("fermion", ("fermion_table",), own=True)
QUESTION = Question(
    module="benchmarks.training",
    title="Training: shuffled batches of 1,024 rows, 10 of 1,000 columns, 100 files",
    cases={
        "an epoch": Case(epoch),
        "first batch": Case(first_batch),
        "order": Case(order, rounds=1),
    },
    libraries=(
        FERMION,
        HuggingFace("hugging face", ("datasets",), "datasets"),
        LanceDB("lancedb", package="lancedb", **IN_ENVIRONMENT),
        MosaicML("mosaicml", package="mosaicml-streaming", **IN_ENVIRONMENT),
        Parquet("parquet file by file", ("pyarrow",), "pyarrow", reference=True),
    ),
    targets=(
        Target("an epoch", 0.5, of="best rival"),
        Target("first batch", 0.3),
    ),
    metrics=("rows", "file_bytes", "neighbours", "one_block"),
    notes="Parquet mixes no rows of different files. A row of MosaicML holds all columns.",
)

if __name__ == "__main__":
    harness.main(QUESTION)

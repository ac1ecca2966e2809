"""Training: shuffled batches of ten of a wide table's columns, of vectors, lists and binaries.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import harness
from benchmarks.files import CACHE, edition, made, size_of
from benchmarks.question import Action, Case, Library, Question, Size, Target

BATCH_ROWS = 1_024
ROW, VALUE = "row", "value"
IN_ENVIRONMENT: dict[str, Any] = {
    "python": ".venv-bench-training",
    "set_up": "make bench-training",
    "seconds_max": 7_200,  # they make batches of single rows
}
BUFFER_ROWS = 100_000
"""Of Hugging Face's shuffle buffer: as much memory as it is usually given."""
WINDOW_BYTES = 10 * 4 * (1_048_576 + 3 * BATCH_ROWS)
"""Of a window of ten columns of floats, and of three batches."""

Batches = Iterator[dict[str, Any]]


@dataclass(frozen=True)
class Data(ABC):
    """What is trained on.

    Attributes
    ----------
    name
        Names its files.
    shapes
        Files, rows of a file, and columns or values of a row.
    batch_rows
        Rows of a batch.
    """

    name: str
    shapes: Mapping[Size, tuple[int, int, int]]
    batch_rows: int = BATCH_ROWS

    def tables(self, size: Size) -> Iterator[pa.Table]:
        """The table, file by file, with the numbers of the rows."""
        files, rows, width = self.shapes[size]
        for number in range(files):
            columns = self.columns(np.random.default_rng(number), rows, width)
            yield pa.table({ROW: np.arange(number * rows, (number + 1) * rows), **columns})

    @abstractmethod
    def columns(self, random: np.random.Generator, rows: int, width: int) -> dict[str, Any]:
        """The columns of a file beside `ROW`."""

    def wanted(self, size: Size) -> list[str]:
        """The columns to train on."""
        return [VALUE]

    def mds(self, width: int) -> str:
        """MosaicML's type of what `sample_of` gives."""
        return "bytes"

    def samples(self, rows: pa.Table) -> Iterator[Any]:
        """What MosaicML stores of each row, beside its number."""
        return iter(rows[VALUE].to_pylist())


class Floats(Data):
    """Measurements of two decimals, of which ten columns are wanted."""

    def columns(self, random: np.random.Generator, rows: int, width: int) -> dict[str, Any]:
        return {
            f"f_{index:04}": np.round(random.normal(index % 100, 10, rows), 2).astype("f4")
            for index in range(width)
        }

    def wanted(self, size: Size) -> list[str]:
        columns = self.shapes[size][2]
        return [f"f_{index * columns // 10:04}" for index in range(10)]

    def mds(self, width: int) -> str:
        return f"ndarray:float32:{width}"

    def samples(self, rows: pa.Table) -> Iterator[Any]:
        names = rows.column_names[1:]
        return iter(np.stack([rows[name].to_numpy() for name in names], axis=1))


class Vectors(Data):
    """Embeddings: random numbers, which no encoding makes smaller."""

    def columns(self, random: np.random.Generator, rows: int, width: int) -> dict[str, Any]:
        values = random.normal(size=rows * width).astype("f4")
        return {VALUE: pa.FixedSizeListArray.from_arrays(pa.array(values), width)}

    def mds(self, width: int) -> str:
        return f"ndarray:float32:{width}"

    def samples(self, rows: pa.Table) -> Iterator[Any]:
        items = rows[VALUE].combine_chunks().flatten().to_numpy()
        return iter(items.reshape(rows.num_rows, -1))


class Lists(Data):
    """Lists of ids, some of which come often."""

    def columns(self, random: np.random.Generator, rows: int, width: int) -> dict[str, Any]:
        offsets = np.concatenate(([0], np.cumsum(random.integers(1, 2 * width, rows))))
        ids = random.zipf(1.3, offsets[-1]) % 1_000_000
        return {VALUE: pa.ListArray.from_arrays(offsets.astype("i4"), ids)}

    def mds(self, width: int) -> str:
        return "ndarray:int64"

    def samples(self, rows: pa.Table) -> Iterator[Any]:
        return (each.values.to_numpy() for each in rows[VALUE])


class Binaries(Data):
    """Values such as images, which no encoding makes smaller."""

    def columns(self, random: np.random.Generator, rows: int, width: int) -> dict[str, Any]:
        return {VALUE: pa.array([random.bytes(width) for _ in range(rows)], pa.binary())}


FLOATS = Floats(
    "floats", {"full": (100, 10_000, 1_000), "quick": (10, 10_000, 1_000), "tiny": (2, 500, 12)}
)
OTHERS = (
    Vectors("vectors", {"full": (20, 5_000, 512), "quick": (4, 5_000, 512), "tiny": (2, 50, 8)}),
    Lists("lists", {"full": (20, 5_000, 20), "quick": (4, 5_000, 20), "tiny": (2, 50, 4)}),
    Binaries(
        "binaries",
        {"full": (20, 100, 100_000), "quick": (4, 100, 100_000), "tiny": (2, 5, 100)},
        32,
    ),
)


class Trained(Library, ABC):
    """What trains from files of its own."""

    def warm_up(self) -> None:
        """Read the smallest table."""
        path = self.stored(FLOATS, "tiny")
        next(self.batches(path, FLOATS.wanted("tiny"), BATCH_ROWS))

    @abstractmethod
    def write(self, path: Path, data: Data, size: Size) -> None:
        """Write the table."""

    @abstractmethod
    def batches(self, path: Path, columns: Sequence[str], batch_rows: int) -> Batches:
        """One epoch."""

    def stored(self, data: Data, size: Size) -> Path:
        """The table's files, written once."""
        package = "fermion" if self.own else self.package
        name = f"{self.name.replace(' ', '-')}-{edition(package)}-{data.name}-{size}"
        return made(CACHE / "training-rows", name, lambda draft: self.write(draft, data, size))


class Fermion(Trained):
    """`Scan.training` over a table of one file an append."""

    def write(self, path: Path, data: Data, size: Size) -> None:
        """Write the table."""
        from fermion_table import Table

        rows = data.tables(size)
        table = Table.create(path, next(rows))
        for each in rows:
            table.append(each)

    def batches(self, path: Path, columns: Sequence[str], batch_rows: int) -> Batches:
        """One epoch."""
        from fermion_table import Table

        reader = Table.open(path).scan(columns=columns).training(batch_rows=batch_rows)
        for batch in reader.epoch(0):
            yield {name: batch[name] for name in columns}


class Parquet(Trained):
    """Whole files in random order, the rows of each shuffled: no more than pyarrow offers."""

    def write(self, path: Path, data: Data, size: Size) -> None:
        """Write the table."""
        path.mkdir()
        for number, each in enumerate(data.tables(size)):
            pq.write_table(each, path / f"{number:03}.parquet", compression="zstd")

    def batches(self, path: Path, columns: Sequence[str], batch_rows: int) -> Batches:
        """One epoch."""
        random = np.random.default_rng(0)
        files = sorted(path.glob("*.parquet"))
        for number in random.permutation(len(files)):
            rows = pq.read_table(files[number], columns=list(columns))
            rows = rows.take(random.permutation(rows.num_rows))
            arrays = {name: values_of(rows[name].combine_chunks()) for name in columns}
            for start in range(0, rows.num_rows, batch_rows):
                yield {name: each[start : start + batch_rows] for name, each in arrays.items()}


class HuggingFace(Parquet):
    """Streams of Parquet files through a shuffle buffer."""

    def batches(self, path: Path, columns: Sequence[str], batch_rows: int) -> Batches:
        """One epoch."""
        import datasets

        # Otherwise it sleeps for 5 s where its threads end, which says nothing about reading.
        datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = 0
        files = [str(each) for each in sorted(path.glob("*.parquet"))]
        rows = datasets.load_dataset(
            "parquet", data_files=files, split="train", streaming=True, columns=list(columns)
        )
        shuffled = rows.shuffle(seed=0, buffer_size=BUFFER_ROWS).with_format("numpy")
        yield from shuffled.iter(batch_size=batch_rows)


class OfTorch(Trained):
    """Datasets of PyTorch in an environment of their own."""

    def loaded(self, dataset: Any, batch_rows: int) -> Batches:
        """Batches of a DataLoader, as it makes them of rows; lists stay as they are."""
        import torch
        from torch.utils.data import DataLoader, default_collate

        def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
            if VALUE in rows[0] and len({len(row[VALUE]) for row in rows}) > 1:
                return {name: [row[name] for row in rows] for name in rows[0]}
            if isinstance(rows[0].get(VALUE), list):
                rows = [{**row, VALUE: torch.tensor(row[VALUE])} for row in rows]
            return default_collate(rows)

        for batch in DataLoader(dataset, batch_size=batch_rows, collate_fn=collate):
            yield {
                name: values.numpy() if hasattr(values, "numpy") else values
                for name, values in batch.items()
            }


class LanceDB(OfTorch):
    """`lancedb.streaming.StreamingDataset`: a permutation of all rows, taken by number."""

    def write(self, path: Path, data: Data, size: Size) -> None:
        """Write the table."""
        import lancedb

        database, rows = lancedb.connect(path), data.tables(size)
        table = database.create_table("t", next(rows))
        for each in rows:
            table.add(each)

    def batches(self, path: Path, columns: Sequence[str], batch_rows: int) -> Batches:
        """One epoch."""
        import lancedb
        from lancedb.streaming import StreamingDataset

        table = lancedb.connect(path).open_table("t")
        dataset = StreamingDataset(table, columns=list(columns), shuffle_seed=0)
        yield from self.loaded(dataset, batch_rows)


class MosaicML(OfTorch):
    """MosaicML's `StreamingDataset` over MDS files; a row has its number and one array."""

    def write(self, path: Path, data: Data, size: Size) -> None:
        """Write the rows."""
        from streaming import MDSWriter

        kinds = {ROW: "int", VALUE: data.mds(data.shapes[size][2])}
        with MDSWriter(out=str(path), columns=kinds) as writer:
            for rows in data.tables(size):
                samples = data.samples(rows)
                for number, value in zip(rows[ROW].to_pylist(), samples, strict=True):
                    is_array = isinstance(value, np.ndarray)
                    value = np.ascontiguousarray(value) if is_array else value
                    writer.write({ROW: number, VALUE: value})

    def batches(self, path: Path, columns: Sequence[str], batch_rows: int) -> Batches:
        """One epoch."""
        from streaming import StreamingDataset

        dataset = StreamingDataset(local=str(path), shuffle=True, batch_size=batch_rows)
        for batch in self.loaded(dataset, batch_rows):
            yield {
                name: batch[VALUE][:, int(name[2:])] if name.startswith("f_") else batch[name]
                for name in columns
            }


def values_of(array: pa.Array) -> Any:
    """Numbers and vectors as NumPy arrays, others as they are."""
    if pa.types.is_fixed_size_list(array.type):
        return array.flatten().to_numpy().reshape(len(array), -1)
    is_number = pa.types.is_floating(array.type) or pa.types.is_integer(array.type)
    return array.to_numpy() if is_number else array


def epoch(library: Trained, size: Size, data: Data = FLOATS) -> Action:
    """Open the table and take all batches of an epoch."""
    path = library.stored(data, size)
    files, rows_of_file, _ = data.shapes[size]
    wanted = data.wanted(size)

    def taken() -> dict[str, int]:
        batches = library.batches(path, wanted, data.batch_rows)
        rows = sum(len(batch[wanted[0]]) for batch in batches)
        assert rows == files * rows_of_file
        return {"rows": rows, "file_bytes": size_of(path)}

    return taken


def first_batch(library: Trained, size: Size) -> Action:
    """Open the table and take one batch."""
    path, wanted = library.stored(FLOATS, size), FLOATS.wanted(size)

    def taken() -> dict[str, int]:
        return {"rows": len(next(library.batches(path, wanted, BATCH_ROWS))[wanted[0]])}

    return taken


def order(library: Trained, size: Size) -> Action:
    """Take the numbers of all rows of an epoch, and tell how well they are mixed."""
    path = library.stored(FLOATS, size)

    def taken() -> dict[str, float]:
        batches = [batch[ROW] for batch in library.batches(path, [ROW], BATCH_ROWS)]
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
    title="Training: shuffled batches of 10 of 1,000 columns; of vectors, lists and binaries",
    cases={
        "an epoch": Case(epoch),
        "first batch": Case(first_batch),
        "order": Case(order, rounds=1),
        **{data.name: Case(partial(epoch, data=data)) for data in OTHERS},
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
        Target("an epoch", WINDOW_BYTES, metric="extra_bytes"),
        *(Target(data.name, 1 / 1.2, of="best rival") for data in OTHERS),
    ),
    metrics=("rows", "file_bytes", "neighbours", "one_block"),
    notes=(
        "Batches of 1,024 rows, of binaries 32. Parquet mixes no rows of different files. A row of "
        "MosaicML holds all columns."
    ),
)

if __name__ == "__main__":
    harness.main(QUESTION)

"""Training: shuffled batches of ten of a wide table's columns, an epoch and the first batch.

Hugging Face streams Parquet files with a shuffle buffer, as its documentation recommends for data
that does not fit into memory; pyarrow reads whole files in random order, and shuffles each.

MosaicML's StreamingDataset and LanceDB's are not here: the former wants an older NumPy than the
other libraries of this environment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import harness
from benchmarks.files import CACHE, edition, made, size_of
from benchmarks.question import Action, Case, Library, Question, Size, Target

BATCH_ROWS = 1_024
BUFFER_ROWS = 100_000
"""Of Hugging Face's shuffle buffer: as much memory as it is usually given."""
SHAPES = {"full": (100, 10_000, 1_000), "quick": (10, 10_000, 200), "tiny": (2, 500, 12)}
"""Files, rows of a file, columns."""

Batches = Iterator[dict[str, np.ndarray]]


def wanted(size: Size) -> list[str]:
    """Ten columns, spread over the table."""
    columns = SHAPES[size][2]
    return [f"f_{index * columns // 10:04}" for index in range(10)]


def tables(size: Size) -> Iterator[pa.Table]:
    """The table, file by file: measurements of two decimals."""
    files, rows, columns = SHAPES[size]
    for number in range(files):
        random = np.random.default_rng(number)
        yield pa.table(
            {
                f"f_{index:04}": np.round(random.normal(index % 100, 10, rows), 2).astype("f4")
                for index in range(columns)
            }
        )


class Trained(Library, ABC):
    """What trains from files of its own."""

    @abstractmethod
    def write(self, path: Path, size: Size) -> None:
        """Write the table."""

    @abstractmethod
    def batches(self, path: Path, columns: Sequence[str]) -> Batches:
        """One epoch."""

    def stored(self, size: Size) -> Path:
        """The table's files, written once."""
        package = self.package or "pyarrow"
        name = f"{self.name.replace(' ', '-')}-{edition(package)}-{size}"
        return made(CACHE / "training", name, lambda draft: self.write(draft, size))


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


FERMION = Fermion("fermion", ("fermion_table",), own=True)
QUESTION = Question(
    module="benchmarks.training",
    title="Training: shuffled batches of 1,024 rows, 10 of 1,000 columns, 100 files",
    cases={"an epoch": Case(epoch), "first batch": Case(first_batch)},
    libraries=(
        FERMION,
        HuggingFace("hugging face", ("datasets",), "datasets"),
        Parquet("parquet, files shuffled", ("pyarrow",), "pyarrow", reference=True),
    ),
    targets=(
        Target("an epoch", 0.5, of="best rival"),
        Target("first batch", 0.3),
    ),
    metrics=("rows", "file_bytes"),
    notes="Parquet mixes no rows of different files.",
)

if __name__ == "__main__":
    harness.main(QUESTION)

"""Features as of then: labels joined with the newest features at each label's time, streamed.

A label takes the newest row of its user that is not later than the label, from a source with ten
rows of each user. Every library streams what it joins; nothing is written. Fermion reads tables,
DuckDB Parquet files by ``ASOF JOIN``, pypaimon tables with row ids by its ``join_asof``. The sum of
one feature tells that all join the same rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import harness
from benchmarks.files import CACHE, edition, made
from benchmarks.question import Action, Case, Library, Question, Size, Target

SHAPES = {
    "full": (1_000_000, 10_000, 1_000),
    "quick": (100_000, 1_000, 1_000),
    "tiny": (100, 10, 5),
}
"""Labels, users, features."""
ROWS_OF_USER = 10
SECONDS_MAX = 1_800
JOIN = """
SELECT labels.*, features.* EXCLUDE (who, moment)
FROM '{0}/labels.parquet' AS labels
ASOF LEFT JOIN '{0}/features.parquet' AS features
ON labels.who = features.who AND labels.moment >= features.moment
"""


def labels(size: Size) -> pa.Table:
    """Users in random order, each at a random second of a day."""
    rows, users, _ = SHAPES[size]
    random = np.random.default_rng(0)
    at = random.integers(0, 86_400, rows).astype("M8[s]").astype("M8[us]")
    return pa.table({"who": random.integers(0, users, rows), "moment": at, "label": rows * [1.0]})


def features(size: Size) -> pa.Table:
    """Rows of all users by time, with measurements of two decimals."""
    _, users, columns = SHAPES[size]
    random = np.random.default_rng(1)
    rows = users * ROWS_OF_USER
    at = np.sort(random.choice(86_400 * 1_000, rows, replace=False)) * 1_000
    return pa.table(
        {
            "who": random.permutation(rows) % users,
            "moment": at.astype("M8[us]"),
            **{
                f"f_{index}": np.round(random.normal(index % 100, 10, rows), 2).astype("f4")
                for index in range(columns)
            },
        }
    )


class Joiner(Library, ABC):
    """What joins from files of its own."""

    def warm_up(self) -> None:
        """Join the smallest rows."""
        list(self.joined(self.stored("tiny")))

    def stored(self, size: Size) -> Path:
        """Labels and features, written once."""
        package = "fermion" if self.own else self.package
        name = f"{self.name}-{edition(package)}-{size}"

        def write(path: Path) -> None:
            path.mkdir()
            for side, rows in (("labels", labels(size)), ("features", features(size))):
                self.write(path, side, rows)

        return made(CACHE / "training-joins", name, write)

    @abstractmethod
    def write(self, path: Path, side: str, rows: pa.Table) -> None:
        """Write labels or features."""

    @abstractmethod
    def joined(self, path: Path) -> Iterable[pa.RecordBatch]:
        """The labels with their features."""


class Fermion(Joiner):
    """`training_frame`."""

    def write(self, path: Path, side: str, rows: pa.Table) -> None:
        """Write labels or features."""
        from fermion_table import Table

        Table.create(path / side, rows)

    def joined(self, path: Path) -> Iterable[pa.RecordBatch]:
        """The labels with their features."""
        from fermion_table import Table
        from fermion_table.training import FeatureSource, training_frame

        source = FeatureSource(Table.open(path / "features"), keys=["who"], time="moment")
        return training_frame(Table.open(path / "labels"), [source]).to_batches()


class DuckDB(Joiner):
    """``ASOF JOIN`` over Parquet files."""

    def write(self, path: Path, side: str, rows: pa.Table) -> None:
        """Write labels or features."""
        pq.write_table(rows, path / f"{side}.parquet", compression="zstd")

    def joined(self, path: Path) -> Iterable[pa.RecordBatch]:
        """The labels with their features."""
        import duckdb

        with duckdb.connect(config={"temp_directory": str(path / "spilled")}) as connection:
            connection.execute("SET memory_limit = '1GB'")
            yield from connection.sql(JOIN.format(path)).to_arrow_reader(65_536)


class Paimon(Joiner):
    """`pypaimon.multimodal.join_asof`, which makes each row of Python objects."""

    def write(self, path: Path, side: str, rows: pa.Table) -> None:
        """Write labels or features."""
        from pypaimon.multimodal import connect

        options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
        connect(options={"warehouse": str(path)}).create_table(side, rows, options=options)

    def joined(self, path: Path) -> Iterable[pa.RecordBatch]:
        """The labels with their features."""
        from pypaimon.multimodal import connect, join_asof

        connection = connect(options={"warehouse": str(path)})
        sides = [connection.get_table(side).scan() for side in ("labels", "features")]
        return join_asof(*sides, on="moment", by="who").to_arrow_batch_reader(batch_size=8_192)


def join(library: Joiner, size: Size) -> Action:
    """Take all joined rows."""
    path = library.stored(size)

    def taken() -> dict[str, float]:
        rows, total = 0, 0.0
        for batch in library.joined(path):
            rows += batch.num_rows
            total += float(np.nansum(batch["f_1"].to_numpy(zero_copy_only=False), dtype="f8"))
        return {"rows": rows, "answer": round(total)}

    return taken


QUESTION = Question(
    module="benchmarks.training_joins",
    title="Features as of then: 1,000 features joined to labels, streamed",
    cases={"join": Case(join)},
    libraries=(
        Fermion("fermion", ("fermion_table",), own=True),
        DuckDB("duckdb", ("duckdb",), "duckdb", seconds_max=SECONDS_MAX),
        Paimon(
            "pypaimon", package="pypaimon", python=".venv-bench-paimon", seconds_max=SECONDS_MAX
        ),
    ),
    targets=(
        Target("join", 30),
        Target("join", 1e9, metric="extra_bytes"),
        Target("join", 0.5, of="best rival"),
    ),
    rounds={"full": 3},
    notes="DuckDB is given 1 GB, and files for what does not fit.",
)

if __name__ == "__main__":
    harness.main(QUESTION)

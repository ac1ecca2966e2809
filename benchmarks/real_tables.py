"""Target 12: five real tables of different kinds beside Parquet with zstd at level 3."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.json as json
import pyarrow.parquet as pq

from benchmarks import harness
from benchmarks.files import PROJECT, size_of
from benchmarks.formats import FERMION, FERMION_COMPACT, ORC, VORTEX_COMPACT, Format, Parquet
from benchmarks.question import Action, Case, NotOffered, Question, Size, Target

FOLDER = Path(os.environ.get("FERMION_TEST_DATA", PROJECT.parent / "shared" / "data"))


def taxi() -> pa.Table:
    """Numbers, money and times: trips of New York's taxis."""
    return pq.read_table(FOLDER / "nyc-taxi" / "taxi.parquet")


def events() -> pa.Table:
    """Deep structs and long texts: an hour of public events, as JSON lines."""
    content = gzip.decompress((FOLDER / "gharchive" / "2015-01-01-0.json.gz").read_bytes())
    options = json.ReadOptions(block_size=len(content) + 1)
    return json.read_json(io.BytesIO(content), read_options=options)


def genes() -> pa.Table:
    """Wide: expression levels of some thousand genes in a hundred samples."""
    content = gzip.decompress((FOLDER / "microarray" / "singh_inputs.csv.gz").read_bytes())
    columns = len(content.partition(b"\n")[0].split(b","))
    names = [f"gene_{index}" for index in range(columns)]
    options = csv.ReadOptions(column_names=names, block_size=len(content) + 1)
    return csv.read_csv(io.BytesIO(content), read_options=options)


def strikes() -> pa.Table:
    """Categories and dates: bird strikes."""
    return csv.read_csv(FOLDER / "vega" / "birdstrikes.csv")


def names() -> pa.Table:
    """Two million short strings and counts: names given to children, 1880 on."""
    years = []
    for file in sorted((FOLDER / "babynames").glob("yob*.txt.gz")):
        content = io.BytesIO(gzip.decompress(file.read_bytes()))
        options = csv.ReadOptions(column_names=["name", "sex", "births"])
        year = csv.read_csv(content, read_options=options)
        years.append(year.append_column("year", pa.array([int(file.name[3:7])] * len(year))))
    return pa.concat_tables(years)


def needs_real_tables() -> None:
    """Raises NotOffered: This machine has no real tables."""
    if not FOLDER.is_dir():
        raise NotOffered(f"needs the real tables ({FOLDER.name}; see CONTRIBUTING.md)")


TABLES: dict[str, Callable[[], pa.Table]] = {
    "taxi trips": taxi,
    "public events (JSON)": events,
    "gene expression": genes,
    "bird strikes": strikes,
    "baby names": names,
}
SMALL = {"taxi trips", "bird strikes"}
ALL_SIZES: tuple[Size, ...] = ("full", "quick", "tiny")


@dataclass(frozen=True)
class ParquetLevelThree(Parquet):
    """Parquet with zstd at level 3."""

    def write(self, table: Any, path: str) -> None:
        pq.write_table(table, path, compression="zstd", compression_level=3)


PARQUET = ParquetLevelThree("parquet zstd-3")


def file_size(name: str) -> Case:
    """Write a table and look at the file; reading it back has to give the same table."""

    def prepare(library: Format, size: Size) -> Action:
        needs_real_tables()
        table = TABLES[name]()
        if size == "tiny":
            table = table.slice(0, 500)
        label = "real-" + "".join(c if c.isalnum() else "-" for c in name)
        path = library.stored(label, size, lambda: table)
        if library.own and not library.read(path).equals(table):
            raise AssertionError(f"{name}: what was read back differs from what was written")
        larger = None
        if library.own:
            parquet = column_bytes_of_parquet(PARQUET.stored(label, size, lambda: table))
            own = column_bytes(path)
            larger = sum(own[column] > parquet[column] for column in own)
        return lambda: {"file_bytes": size_of(Path(path)), "larger_columns": larger}

    return Case(prepare, sizes=ALL_SIZES if name in SMALL else ALL_SIZES[:1])


def column_bytes(path: str) -> dict[str, int]:
    """Bytes of the pages of each column of a Fermion file."""
    import fermion

    with fermion.open(path) as file:
        names = file.schema.names
        return {name: sum(each.length for each in file.column(name).streams) for name in names}


def column_bytes_of_parquet(path: str) -> dict[str, int]:
    """The same of a Parquet file, with its headers of pages."""
    found: dict[str, int] = {}
    with pq.ParquetFile(path) as file:
        for group in range(file.metadata.num_row_groups):
            for number in range(file.metadata.num_columns):
                chunk = file.metadata.row_group(group).column(number)
                column = chunk.path_in_schema.split(".")[0]
                found[column] = found.get(column, 0) + chunk.total_compressed_size
    return found


QUESTION = Question(
    module="benchmarks.real_tables",
    title="12  Five real tables: file size beside Parquet zstd-3",
    cases={name: file_size(name) for name in TABLES},
    libraries=(FERMION, FERMION_COMPACT, PARQUET, ORC, VORTEX_COMPACT),
    targets=tuple(
        Target(name, 0.8, metric="file_bytes", of=PARQUET.name, measured=FERMION.name)
        for name in TABLES
    ),
    rounds={"full": 1},
    headline="file_bytes",
    metrics=("file_bytes", "larger_columns"),
    notes="Larger columns: those that take more bytes than in Parquet.",
)

if __name__ == "__main__":
    harness.main(QUESTION)

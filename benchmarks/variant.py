"""What one path of JSON events costs, a filter by one, all of them, and their file."""

from __future__ import annotations

import gzip
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import harness
from benchmarks.files import size_of
from benchmarks.formats import DuckDBParquet, Fermion, Format
from benchmarks.question import Action, Case, Question, Size, Target
from benchmarks.real_tables import FOLDER, needs_real_tables

EVENTS: dict[Size, int] = {"full": 7_702, "quick": 7_702, "tiny": 20}
ACTOR = "actor.id"
NUMBER = f"variant_get(event, '$.{ACTOR}', 'bigint')"
NAME = "variant_get(event, '$.repo.name', 'string')"
WANTED = "jvantuyl/sublime_diagram_plugin"


def events(size: Size) -> pa.Table:
    """An hour of public events, as they were published: a line of JSON each."""
    needs_real_tables()
    lines = gzip.decompress((FOLDER / "gharchive" / "2015-01-01-0.json.gz").read_bytes())
    texts = [line.decode() for line in lines.splitlines()[: EVENTS[size]]]
    return pa.table({"event": texts})


class Events(Format):
    """A format in which events lie as values of any shape, or as text."""

    @abstractmethod
    def path(self, path: str) -> Any:
        """A number of each event."""

    @abstractmethod
    def filtered(self, path: str) -> Any:
        """The number in the events of one repository."""


@dataclass(frozen=True)
class FermionEvents(Fermion, Events):
    """Ours, with columns for frequent paths."""

    def write(self, table: Any, path: str) -> None:
        import fermion

        variants = pa.table({"event": fermion.variant.from_json(table["event"])})
        shred = {"event": fermion.Shred()}
        fermion.write_table(variants, path, durable=False, profile=self.profile, shred=shred)

    def path(self, path: str) -> Any:
        return self.read(path, [NUMBER])

    def filtered(self, path: str) -> Any:
        with self.open(path) as file:
            return file.read([NUMBER], filter=f"{NAME} = '{WANTED}'")


@dataclass(frozen=True)
class DuckDBText(DuckDBParquet, Events):
    """DuckDB over a Parquet file of the text, with zstd at level 3."""

    number: str = f"json_extract(event, '$.{ACTOR}')::BIGINT"
    name_of: str = "json_extract_string(event, '$.repo.name')"

    def write(self, table: Any, path: str) -> None:
        import pyarrow.parquet as pq

        pq.write_table(table, path, compression="zstd", compression_level=3)

    def path(self, path: str) -> Any:
        return self._rows(path, [self.number], "")

    def filtered(self, path: str) -> Any:
        return self._rows(path, [self.number], f" WHERE {self.name_of} = '{WANTED}'")


@dataclass(frozen=True)
class DuckDBVariant(DuckDBText):
    """DuckDB's VARIANT in Parquet, which it shreds, with zstd at level 3."""

    number: str = f"event.{ACTOR}::BIGINT"
    name_of: str = "event.repo.name::VARCHAR"

    def write(self, table: Any, path: str) -> None:
        import duckdb

        duckdb.from_arrow(table).query(
            "events",
            f"COPY (SELECT event::JSON::VARIANT AS event FROM events) TO '{path}' "
            "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3)",
        )


def case(read: Any) -> Case:
    """Read something of the file of events."""

    def prepare(library: Events, size: Size) -> Action:
        path = library.stored("events", size, lambda: events(size))

        def timed() -> dict[str, int]:
            return {"rows": read(library, path).num_rows, "file_bytes": size_of(Path(path))}

        return timed

    return Case(prepare, calls=5)


PATH, ALL, TEXT = "a path of all events", "all events", "duckdb, text in parquet"
QUESTION = Question(
    module="benchmarks.variant",
    title="7,702 public events as JSON: one path, a filter by one, all of them, the file",
    cases={
        PATH: case(lambda library, path: library.path(path)),
        "events of one repository": case(lambda library, path: library.filtered(path)),
        ALL: case(lambda library, path: library.read(path)),
        "write": Case(lambda library, size: library.writing(events(size), size)),
    },
    libraries=(
        FermionEvents("fermion"),
        FermionEvents("fermion compact", profile="compact"),
        DuckDBText(TEXT),
        DuckDBVariant("duckdb, variant in parquet"),
    ),
    targets=(
        Target(PATH, 0.1, of=TEXT),
        Target(PATH, 0.8, metric="file_bytes", of=TEXT),
        Target(PATH, 0.9, metric="file_bytes", of="duckdb, variant in parquet"),
    ),
    rounds={"full": 5},
    metrics=("file_bytes",),
    warm_up=False,
    notes="All events come as they are stored: as Variant, or as text. Writing begins with text.",
)

if __name__ == "__main__":
    harness.main(QUESTION)

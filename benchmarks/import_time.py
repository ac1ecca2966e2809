"""Target 13: what importing costs, and what the first read adds."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

from benchmarks import data, harness
from benchmarks.formats import FERMION
from benchmarks.question import Action, Case, Library, NotOffered, Question, Size, Target


@dataclass(frozen=True)
class Program(Library):
    """A statement, and one that makes everything be loaded that reading and writing need."""

    statement: str = ""
    everything: str = ""
    read: str = ""


def started(code: str) -> Action:
    """A fresh process each time, which times the statement from within."""
    clock = f"import time; a = time.perf_counter(); {code}; print(time.perf_counter() - a)"

    def run() -> dict[str, float]:
        command = [sys.executable, "-c", clock]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return {"seconds": float(done.stdout.split()[-1])}

    run()  # the second time finds everything compiled
    return run


def import_alone(library: Program, size: Size) -> Action:
    """The statement that users write."""
    return started(library.statement)


def import_everything(library: Program, size: Size) -> Action:
    """With all that reading and writing files loads."""
    return started(library.everything)


def import_and_read(library: Program, size: Size) -> Action:
    """Import and read a file of two rows."""
    if not library.read:
        raise NotOffered("not measured")
    path = FERMION.stored("two-rows", "tiny", data.tiny)
    return started(library.read.format(path=path))


QUESTION = Question(
    module="benchmarks.import_time",
    title="13  Imports",
    cases={
        "import": Case(import_alone),
        "import all of it": Case(import_everything),
        "import, read two rows": Case(import_and_read),
    },
    libraries=(
        Program(
            "fermion",
            ("fermion",),
            "fermion",
            own=True,
            statement="import fermion",
            everything="from fermion import *",
            read="import fermion; fermion.read_table({path!r})",
        ),
        Program(
            "pyarrow",
            ("pyarrow",),
            "pyarrow",
            statement="import pyarrow",
            everything="import pyarrow, pyarrow.compute, pyarrow.parquet, pyarrow.dataset",
        ),
        Program(
            "polars",
            ("polars",),
            "polars",
            statement="import polars",
            everything="import polars; polars.scan_parquet",
        ),
        Program(
            "vortex",
            ("vortex",),
            "vortex-data",
            statement="import vortex",
            everything="import vortex, vortex.io",
        ),
        Program(
            "lance",
            ("lance",),
            "pylance",
            statement="import lance",
            everything="import lance, lance.file",
        ),
    ),
    targets=(Target("import", 1.5, of="pyarrow"),),
    rounds={"full": 7},
    warm_up=False,
    notes="fermion loads a module when a name of it is first asked for; 'import all of it' asks "
    "for every name, beside pyarrow with the modules that do the same work.",
)

if __name__ == "__main__":
    harness.main(QUESTION)

"""Counts the modules of ours that a small append and a filtered scan of four columns visit.

    python tools/visits.py append|scan warm|cold

prints a JSON object: ``modules``, the files whose functions ran, and ``switches``, the calls from
one of these files to another. A warm process has done the same twice before. A cold one has only
imported the class of tables, so that its first call also imports what it needs. `tools.house` runs
this in processes of its own, perhaps with the packages of another checkout on ``PYTHONPATH``.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

import fermion_table

PACKAGES = ("fermion", "fermion_table", "spark_ext", "flink_ext")
ROWS = 10_000
COLUMNS = 10
SMALL_ROWS = 3
ROUNDS_BEFORE = 2


class Visits:
    """The files of our packages whose functions ran while `recording`, in any thread."""

    def __init__(self) -> None:
        self.root = Path(fermion_table.__file__).resolve().parent.parent
        self.prefixes = tuple(f"{self.root / package}/" for package in PACKAGES)
        self.files: set[str] = set()
        self.switches = 0
        self.recording = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """What `sys.setprofile` calls."""
        if not self.recording or event != "call":
            return
        file = frame.f_code.co_filename
        if not file.startswith(self.prefixes):
            return
        self.files.add(file)
        caller = frame.f_back.f_code.co_filename if frame.f_back else None
        self.switches += caller != file and (caller or "").startswith(self.prefixes)

    def of(self, function: Callable[[], object]) -> None:
        """Record one call."""
        self.recording = True
        sys.setprofile(self)
        try:
            function()
        finally:
            sys.setprofile(None)
            self.recording = False


def rows(count: int) -> pa.Table:
    """Rows of four columns of numbers and text, and of columns that no query wants."""
    columns: dict[str, object] = {
        "id": range(count),
        "amount": [number / 4 for number in range(count)],
        "name": [f"name {number % 50}" for number in range(count)],
        "day": pa.array([number % 365 for number in range(count)], pa.int32()),
    }
    columns |= {f"other {place}": range(place, count + place) for place in range(4, COLUMNS)}
    return pa.table(columns)


def make_table(location: str) -> None:
    """Create the table that is read and appended to."""
    fermion_table.Table.create(location, rows(ROWS))


def main(what: str, state: str) -> None:
    """Make a table, do it once with the profile, and print what it visited."""
    visits = Visits()
    threading.setprofile(visits)  # for the threads that pools start later
    with tempfile.TemporaryDirectory() as directory:
        location = str(Path(directory, "t"))
        # Another process makes the table, so that a cold one has done nothing yet.
        maker = multiprocessing.get_context("fork").Process(target=make_table, args=(location,))
        maker.start()
        maker.join()
        table_class = fermion_table.Table  # a lazy name: modules that it imports are not visited
        few = rows(SMALL_ROWS)

        def append() -> None:
            table_class.open(location).append(few)

        def scan() -> None:
            table = table_class.open(location)
            names = ["id", "amount", "name", "day"]
            found = table.scan(columns=names, filter="id >= 9000 and amount < 2400").to_arrow()
            assert found.num_rows == 600, found.num_rows

        function = {"append": append, "scan": scan}[what]
        for _ in range(ROUNDS_BEFORE if state == "warm" else 0):
            function()
        visits.of(function)
    modules = sorted(str(Path(file).relative_to(visits.root)) for file in visits.files)
    print(json.dumps({"modules": modules, "switches": visits.switches}))


if __name__ == "__main__":
    main(*sys.argv[1:])

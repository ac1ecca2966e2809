"""Where Fermion's time goes: the functions that take most of it, for each kind of read, as text."""

from __future__ import annotations

import cProfile
import io
import os
import pstats
import re
import time
from collections.abc import Callable
from typing import Any

import fermion
from benchmarks import data, harness, lineitem_read, open_wide, random_rows, wide_file
from benchmarks.files import PROJECT
from benchmarks.formats import FERMION, FERMION_RANDOM
from benchmarks.question import Size

FUNCTIONS = 8
ONE_THREAD = fermion.ReadOptions(threads=1)  # a profile sees the calling thread alone


def read(path: str, columns: Any = None, filter: Any = None) -> Any:
    """Open and read."""
    with fermion.open(path, options=ONE_THREAD) as file:
        return file.read(columns, filter=filter)


def take(path: str, rows: Any, columns: Any = None) -> Any:
    """Open and take rows."""
    with fermion.open(path, options=ONE_THREAD) as file:
        return file.take(rows, columns=columns)


def actions(size: Size) -> dict[str, Callable[[], Any]]:
    """What is profiled."""
    columns = 100 if size == "tiny" else 10_000
    wide = open_wide.stored(FERMION, columns, size)
    whole = str(wide_file.stored(FERMION, size))
    lines = lineitem_read.stored(FERMION, size)
    random = lineitem_read.stored(FERMION_RANDOM, size)
    rows = data.random_rows(random_rows.TOTAL[size])
    date = fermion.col("l_shipdate")
    month = (date >= data.MONTH[0]) & (date < data.MONTH[1])
    three = lineitem_read.THREE
    return {
        f"10 of {columns:,} columns": lambda: read(wide, data.some_names(columns)),
        "a wide file, all": lambda: read(whole),
        "lineitem, all": lambda: read(lines),
        "lineitem, one month": lambda: read(lines, filter=month),
        "lineitem, one month, 3 columns": lambda: read(lines, three, month),
        "lineitem (random), 1,000 rows": lambda: take(random, rows),
        "lineitem (random), 1,000 rows, 3 columns": lambda: take(random, rows, three),
    }


def profile(action: Callable[[], Any]) -> tuple[float, str]:
    """Seconds without the profiler, and the functions that take most time under it."""
    action()
    start = time.perf_counter()
    action()
    seconds = time.perf_counter() - start
    profiler = cProfile.Profile()
    profiler.runcall(action)
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(FUNCTIONS)
    lines = [line for line in text.getvalue().splitlines() if line.strip()]
    first = next(index for index, line in enumerate(lines) if "ncalls" in line)
    return seconds, "\n".join(shortened(line) for line in lines[first:])


def shortened(line: str) -> str:
    """Paths from the project's or the library's folder on."""
    line = line.replace(f"{PROJECT}{os.sep}", "")
    return re.sub(r"\S*/(?:site-packages|lib/python3\.\d+)/", "", line).rstrip()


def main() -> None:
    """Profile everything; print it, and keep it beside the results of a full run."""
    options = harness.arguments("Profiles")
    parts = []
    for name, action in actions(options.size).items():
        seconds, text = profile(action)
        parts.append(f"{name}: {seconds * 1e3:.3g} ms on one thread\n{text}\n")
    whole = "\n".join(parts)
    print(whole)
    folder = harness.results_folder(options)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "profiles.txt").write_text(whole)


if __name__ == "__main__":
    main()

"""The memory of repeated reads: page faults, and the system time that they take."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence

from benchmarks import harness, lineitem_read
from benchmarks.formats import FERMION, LANCE, PARQUET_ZSTD, VORTEX, VORTEX_STRINGS, Format
from benchmarks.question import Action, Case, Question, Size, Target

READS = {"full": 8, "quick": 4, "tiny": 2}


def repeated(columns: Sequence[str] | None) -> Case:
    """The same read again and again in one process, whose first read is counted by itself."""

    def prepare(library: Format, size: Size) -> Action:
        path = lineitem_read.stored(library, size)

        def reads() -> dict[str, float]:
            uses = [_used()]
            start = time.perf_counter()
            for _ in range(READS[size]):
                library.read(path, columns)
                uses.append(_used())
            elapsed = time.perf_counter() - start
            first, (_, before), (_, last) = uses[0], (0, uses[1]), (0, uses[-1])
            later = [(b - a) / (READS[size] - 1) for a, b in zip(before, last, strict=True)]
            return {
                "seconds": elapsed / READS[size],
                "first_faults": before[2] - first[2],
                "faults": later[2],
                "user_seconds": later[0],
                "system_seconds": later[1],
                "system_per_user": later[1] / max(later[0], 1e-9),
            }

        return reads

    return Case(prepare)


def _used() -> tuple[float, float, float]:
    """Seconds of user and system time, and page faults, of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime, usage.ru_stime, float(usage.ru_minflt)


CASES = {"all columns": repeated(None), "3 columns": repeated(lineitem_read.THREE)}

QUESTION = Question(
    module="benchmarks.memory",
    title="16  Page faults and system time of repeated reads",
    cases=CASES,
    libraries=(FERMION, VORTEX_STRINGS, VORTEX, LANCE, PARQUET_ZSTD),
    targets=(
        *(Target(case, 0.25, metric="system_per_user") for case in CASES),
        *(Target(case, 1.0, of=VORTEX_STRINGS.name, metric="faults") for case in CASES),
    ),
    rounds={"full": 3},
    metrics=("first_faults", "faults", "user_seconds", "system_seconds", "system_per_user"),
    isolated=True,
    notes="Per read of lineitem, from the second on; the first read's faults by themselves. Memory "
    "is the peak while reading beyond what was there before.",
)

if __name__ == "__main__":
    harness.main(QUESTION)

"""What a fresh process does: ``python -m benchmarks.worker JOB`` measures, and prints JSON."""

from __future__ import annotations

import importlib
import json
import resource
import statistics
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.question import Case, Library, NotOffered, Question, Size

STATUS = Path("/proc/self/status")


def resident_bytes(key: str) -> int | None:
    """``VmRSS`` (now) or ``VmHWM`` (peak) of this process; None where the system does not say."""
    if not STATUS.exists():
        return None
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return None


def peak_bytes() -> int:
    """The largest resident size so far (or since `forget_peak`)."""
    known = resident_bytes("VmHWM")
    if known is not None:  # ru_maxrss also remembers what the parent held before exec
        return known
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def forget_peak() -> int:
    """Start the peak anew where the system can (Linux); return the resident size now."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return peak_bytes()
    return resident_bytes("VmRSS") or peak_bytes()


def described(result: Any) -> dict[str, Any]:
    """What is worth noting of an action's result, for checks and further metrics."""
    if isinstance(result, dict):
        return result
    if hasattr(result, "num_rows") and hasattr(result, "num_columns"):
        noted = {"rows": result.num_rows, "columns": result.num_columns}
        return noted | ({"arrow_bytes": result.nbytes} if hasattr(result, "nbytes") else {})
    return {}


def measure(case: Case, library: Library, size: Size) -> dict[str, Any]:
    """Prepare a case, then time its action."""
    action = case.prepare(library, size)
    before = forget_peak()
    times, result = [], None
    used = time.process_time()
    for _ in range(case.calls):
        result = None  # the memory of one result, not of two
        start = time.perf_counter()
        result = action()
        times.append(time.perf_counter() - start)
    used = time.process_time() - used
    peak = peak_bytes()
    figures = {
        "seconds": statistics.median(times),
        "first_seconds": times[0],
        "cpu_seconds": used / case.calls,
        "peak_bytes": peak,
        "extra_bytes": max(peak - before, 0),
    }
    noted = described(result)
    if library.one_in > 1:  # of other rows than those of other libraries
        noted = {key: value for key, value in noted.items() if key not in ("rows", "columns")}
    return figures | noted


def perform(job: dict[str, Any]) -> dict[str, Any]:
    """Measure the cases of a job, or (without ``"measure"``) make their files; answers by case."""
    question: Question = importlib.import_module(job["question"]).QUESTION
    library = next(one for one in question.libraries if one.name == job["library"])
    size: Size = job["size"]
    if job["measure"]:
        for module in library.modules:
            importlib.import_module(module)
        if question.warm_up:
            library.warm_up()
    answers: dict[str, Any] = {}
    for name in job["cases"]:
        case = question.cases[name]
        try:
            if job["measure"]:
                answers[name] = measure(case, library, size)
            else:
                case.prepare(library, size)
        except NotOffered as reason:
            answers[name] = {"not_offered": str(reason)}
        except Exception:  # noqa: BLE001 - the parent prints it beside the library's name
            answers[name] = {"failed": traceback.format_exc()}
    return answers


def main() -> None:
    """Read the job from the command line."""
    print(json.dumps(perform(json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()

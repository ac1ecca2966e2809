"""Runs a question: fresh processes, interleaved rounds, medians, JSON, one table, the verdicts."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.files import CACHE, PROJECT
from benchmarks.machine import description, today
from benchmarks.question import Contestant, Question, Size

RESULTS = PROJECT / "benchmarks" / "results"
JOB_SECONDS_MAX = 600


@dataclass
class Result:
    """What one contestant did in one case.

    Attributes
    ----------
    rounds
        Figures of every process that succeeded.
    remark
        Why there are none: not offered, or failed.
    """

    contestant: str
    case: str
    own: bool
    reference: bool
    rounds: list[dict[str, Any]] = field(default_factory=list)
    remark: str = ""

    def median(self, metric: str) -> float | None:
        """The median over the rounds; None where the figure is missing."""
        known = [figures[metric] for figures in self.rounds if figures.get(metric) is not None]
        return statistics.median(known) if known else None

    def as_json(self) -> dict[str, Any]:
        """Medians first, then every round."""
        keys = dict.fromkeys(key for figures in self.rounds for key in figures)
        medians = {key: self.median(key) for key in keys}
        return {
            "contestant": self.contestant,
            "case": self.case,
            "median": medians,
            "remark": self.remark,
            "rounds": self.rounds,
        }


def interpreter(contestant: Contestant) -> str | None:
    """The Python that runs a contestant; None where its environment was not set up."""
    if contestant.python is None:
        return sys.executable
    found = PROJECT / contestant.python / "bin" / "python"
    return str(found) if found.exists() else None


def missing_part(contestant: Contestant) -> str | None:
    """What has to be installed before a contestant can run; None: nothing."""
    python = interpreter(contestant)
    if python is None:
        return f"{contestant.package} (make bench sets up {contestant.python})"
    if contestant.python is None:
        for module in contestant.modules:
            if importlib.util.find_spec(module.partition(".")[0]) is None:
                return f"{contestant.package or module} (pip install '.[bench]')"
    return None


def run_job(contestant: Contestant, job: dict[str, Any]) -> dict[str, Any]:
    """Do one job in a fresh process; a process that dies is an answer too."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "FERMION_BENCH_CACHE": str(CACHE)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package comes compiled
    command = [interpreter(contestant) or "", "-m", "benchmarks.worker", json.dumps(job)]
    try:
        process = subprocess.run(
            command,
            cwd=PROJECT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=JOB_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"no end after {JOB_SECONDS_MAX} s"}
    lines = process.stdout.strip().splitlines()
    if process.returncode or not lines:
        return {"failed": f"exit status {process.returncode}: {process.stderr[-2000:]}"}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def jobs(question: Question, size: Size, contestants: list[Contestant]) -> Iterator[Any]:
    """(round, contestant, case name), interleaved: each round meets every contestant once."""
    names = [name for name, case in question.cases.items() if size in case.sizes]
    for number in range(question.rounds_at(size)):
        for name in names:
            turn = number % max(len(contestants), 1)  # nobody is always first
            for contestant in contestants[turn:] + contestants[:turn]:
                yield number, contestant, name


def measure(question: Question, size: Size, contestants: list[Contestant]) -> list[Result]:
    """Run every case of every contestant, round after round."""
    results = {
        (contestant.name, case): Result(contestant.name, case, contestant.own, contestant.reference)
        for case in question.cases
        if size in question.cases[case].sizes
        for contestant in contestants
    }
    for contestant in contestants:  # a trouble with making files is met again below
        job = {"question": question.module, "contestant": contestant.name, "size": size}
        run_job(contestant, job)
    for _, contestant, case in jobs(question, size, contestants):
        result = results[contestant.name, case]
        if result.remark.startswith("failed"):
            continue
        result.remark = ""
        job = {"question": question.module, "contestant": contestant.name, "size": size}
        answer = run_job(contestant, job | {"case": case})
        if not note_trouble(answer, result):
            result.rounds.append(answer)
    return list(results.values())


def note_trouble(answer: dict[str, Any], result: Result) -> bool:
    """Put the reason for missing figures into a result; whether there is one."""
    if "not_offered" in answer:
        result.remark = f"not offered: {answer['not_offered']}"
    elif "failed" in answer:
        result.remark = f"failed: {answer['failed'].strip().splitlines()[-1][:200]}"
        if result.own:
            print(answer["failed"], file=sys.stderr)
    else:
        return False
    return True


def disagreements(results: list[Result]) -> list[str]:
    """Cases whose contestants gave back different numbers of rows or columns."""
    found = []
    for case in dict.fromkeys(result.case for result in results):
        shapes = {
            result.contestant: (figures.get("rows"), figures.get("columns"))
            for result in results
            if result.case == case
            for figures in result.rounds
            if figures.get("rows") is not None
        }
        if len(set(shapes.values())) > 1:
            found.append(f"{case}: {shapes}")
    return found


def run(
    question: Question,
    size: Size = "full",
    *,
    only: list[str] | None = None,
    folder: Path | None = None,
) -> list[Result]:
    """Measure a question, print its table and write its JSON.

    Parameters
    ----------
    question
        What to measure.
    size
        How large; only ``full`` is judged by the targets.
    only
        Names of contestants; None: all that are installed.
    folder
        Where the JSON goes; None: nowhere.

    Raises
    ------
    RuntimeError
        A contestant of ours failed, or contestants read different tables.
    """
    chosen = [one for one in question.contestants if only is None or one.name in only]
    missing = {one.name: part for one in chosen if (part := missing_part(one)) is not None}
    results = measure(question, size, [one for one in chosen if one.name not in missing])
    verdicts = report.verdicts(question, results) if size == "full" else []
    name = question.module.rpartition(".")[2]
    print(report.table(question, size, results, missing, verdicts), flush=True)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "question": name,
            "title": question.title,
            "size": size,
            "date": today(),
            "machine": description(),
            "notes": question.notes,
            "missing": missing,
            "targets": [verdict.as_json() for verdict in verdicts],
            "results": [result.as_json() for result in results],
        }
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    broken = [f"{r.contestant}: {r.case}: {r.remark}" for r in results if r.own and r.remark]
    broken = [line for line in broken if "failed" in line] + disagreements(results)
    if broken:
        raise RuntimeError("; ".join(broken))
    return results


def arguments(description: str) -> argparse.Namespace:
    """The options that every benchmark takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--size", choices=["full", "quick", "tiny"], default="full")
    parser.add_argument("--only", help="contestants, separated by commas; writes no results")
    parser.add_argument("--prepare", action="store_true", help="only make the files")
    parser.add_argument("--results", type=Path, help="folder of the JSON")
    return parser.parse_args()


def results_folder(options: argparse.Namespace) -> Path | None:
    """Where results of this call go: committed ones come from whole runs at full size."""
    if options.results is not None or options.only:
        folder: Path | None = options.results
        return folder
    return RESULTS if options.size == "full" else CACHE / options.size / "results"


def main(question: Question) -> None:
    """Run one question from the command line."""
    options = arguments(question.title)
    only = options.only.split(",") if options.only else None
    if options.prepare:
        for one in question.contestants:
            if (only is None or one.name in only) and missing_part(one) is None:
                job = {"question": question.module, "contestant": one.name, "size": options.size}
                print(one.name, run_job(one, job) or "ready", flush=True)
        return
    run(question, options.size, only=only, folder=results_folder(options))

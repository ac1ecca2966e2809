"""Runs a question: fresh processes, interleaved rounds, medians, JSON, one table, the verdicts."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.files import CACHE, PROJECT
from benchmarks.machine import description, today
from benchmarks.question import Library, Question, Size

RESULTS = PROJECT / "benchmarks" / "results"
JOB_SECONDS_MAX = 600


@dataclass
class Result:
    """What one library did in one case.

    Attributes
    ----------
    rounds
        Figures of every process that succeeded.
    remark
        Why there are none: not offered, or failed.
    trace
        Of a failure, in full.
    """

    measured: str
    case: str
    own: bool
    reference: bool
    rounds: list[dict[str, Any]] = field(default_factory=list)
    remark: str = ""
    trace: str = ""

    def median(self, metric: str) -> float | None:
        """The median over the rounds; None where the figure is missing."""
        known = [figures[metric] for figures in self.rounds if figures.get(metric) is not None]
        return statistics.median(known) if known else None

    @classmethod
    def from_json(cls, question: Question, stored: dict[str, Any]) -> Result:
        """What `as_json` gave."""
        library = next(one for one in question.libraries if one.name == stored["library"])
        return cls(
            library.name,
            stored["case"],
            library.own,
            library.reference,
            stored["rounds"],
            stored["remark"],
        )

    def as_json(self) -> dict[str, Any]:
        """Medians first, then every round."""
        keys = dict.fromkeys(key for figures in self.rounds for key in figures)
        medians = {key: self.median(key) for key in keys}
        return {
            "library": self.measured,
            "case": self.case,
            "kind": "own" if self.own else "reference" if self.reference else "rival",
            "median": medians,
            "remark": self.remark,
            "rounds": self.rounds,
        }


def interpreter(library: Library) -> str | None:
    """The Python that runs a library; None where its environment was not set up."""
    if library.python is None:
        return sys.executable
    found = PROJECT / library.python / "bin" / "python"
    return str(found) if found.exists() else None


def missing_part(library: Library) -> str | None:
    """What has to be installed before a library can run; None: nothing."""
    python = interpreter(library)
    if python is None:
        return f"{library.package} ({library.set_up} sets up {library.python})"
    if library.python is None:
        for module in library.modules:
            if importlib.util.find_spec(module.partition(".")[0]) is None:
                return f"{library.package or module} (pip install '.[bench]')"
    return None


def run_job(
    question: Question,
    library: Library,
    size: Size,
    cases: Sequence[str],
    *,
    measure: bool = True,
) -> dict[str, dict[str, Any]]:
    """Measure cases in one fresh process, or only make their files; answers by case.

    A process that dies is an answer too.
    """
    job = {
        "question": question.module,
        "library": library.name,
        "size": size,
        "cases": list(cases),
        "measure": measure,
    }
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "FERMION_BENCH_CACHE": str(CACHE)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package comes compiled
    command = [interpreter(library) or "", "-m", "benchmarks.worker", json.dumps(job)]
    seconds_max = library.seconds_max or JOB_SECONDS_MAX
    if not measure:
        seconds_max = max(seconds_max, JOB_SECONDS_MAX)
    try:
        process = subprocess.run(
            command,
            cwd=PROJECT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {case: {"failed": f"no end after {seconds_max:.0f} s"} for case in cases}
    lines = process.stdout.strip().splitlines()
    if process.returncode or not lines:
        trouble = f"{process.stderr[-2000:]}\nexit status {process.returncode}"
        return {case: {"failed": trouble} for case in cases}
    answers: dict[str, dict[str, Any]] = json.loads(lines[-1])
    return answers


def jobs(
    question: Question,
    size: Size,
    libraries: list[Library],
    names: list[str],
    rounds: int | None,
) -> Iterator[tuple[Library, list[str]]]:
    """Who measures which cases in one process; each round meets every library once a case."""
    together = [[name] for name in names]
    if size != "full" and not question.isolated:
        together = [names]
    for number in range(rounds or question.rounds_at(size)):
        for cases in together:
            cases = [name for name in cases if number < (question.cases[name].rounds or number + 1)]
            turn = number % max(len(libraries), 1)  # nobody is always first
            for library in libraries[turn:] + libraries[:turn]:
                yield library, cases


def measure(
    question: Question,
    size: Size,
    libraries: list[Library],
    names: list[str],
    rounds: int | None = None,
) -> list[Result]:
    """Run cases of every library, round after round."""
    results = {
        (library.name, case): Result(library.name, case, library.own, library.reference)
        for case in names
        for library in libraries
    }
    if size == "full" or question.isolated:
        for library in libraries:  # a trouble with making files is met again below
            run_job(question, library, size, names, measure=False)
    for library, cases in jobs(question, size, libraries, names, rounds):
        known = [case for case in cases if not results[library.name, case].remark]
        answers = run_job(question, library, size, known) if known else {}
        for case, answer in answers.items():
            result = results[library.name, case]
            if not note_trouble(answer, result):
                result.rounds.append(answer)
    return list(results.values())


def note_trouble(answer: dict[str, Any], result: Result) -> bool:
    """Put the reason for missing figures into a result; whether there is one."""
    if "not_offered" in answer:
        result.remark = f"not offered: {answer['not_offered']}"
    elif "failed" in answer:
        last = answer["failed"].strip().splitlines()[-1].replace(f"{PROJECT}/", "")
        result.remark = f"failed: {last[:200]}"
        result.trace = answer["failed"]
    else:
        return False
    return True


def disagreements(results: list[Result]) -> list[str]:
    """Cases whose libraries gave back different numbers of rows or columns, or answers."""
    found = []
    for case in dict.fromkeys(result.case for result in results):
        shapes = {
            result.measured: tuple(figures.get(key) for key in ("rows", "columns", "answer"))
            for result in results
            if result.case == case
            for figures in result.rounds
            if figures.get("rows") is not None or "answer" in figures
        }
        if len(set(shapes.values())) > 1:
            found.append(f"{case}: {shapes}")
    return found


def run(
    question: Question,
    size: Size = "full",
    *,
    only: list[str] | None = None,
    cases: list[str] | None = None,
    rounds: int | None = None,
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
        Names of libraries; None: all that are installed.
    cases
        Names of cases; the stored results of the others stay. None: all.
    rounds
        Processes for each case and library; None: as the question says.
    folder
        Where the JSON goes; None: nowhere.

    Raises
    ------
    RuntimeError
        A library of ours failed, or libraries read different tables.
    """
    chosen = [one for one in question.libraries if only is None or one.name in only]
    missing = {one.name: part for one in chosen if (part := missing_part(one)) is not None}
    names = [
        name
        for name, case in question.cases.items()
        if size in case.sizes and (cases is None or name in cases)
    ]
    present = [one for one in chosen if one.name not in missing]
    results = measure(question, size, present, names, rounds)
    broken = troubles(results)
    if cases is not None and folder is not None:
        results = earlier(question, folder, results)
    verdicts = report.verdicts(question, results) if size == "full" else []
    name = file_name(question)
    print(report.table(question, size, results, missing, verdicts), flush=True)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "question": question.module,
            "title": question.title,
            "size": size,
            "date": today(),
            "machine": description(),
            "notes": question.notes,
            "missing": missing,
            "targets": [verdict.as_json() for verdict in verdicts],
            "results": [result.as_json() for result in results],
        }
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")
    if broken:
        raise RuntimeError("; ".join(broken))
    return results


def file_name(question: Question) -> str:
    """Of the results."""
    return question.module.rpartition(".")[2] + ".json"


def troubles(results: list[Result]) -> list[str]:
    """What makes a run a failure: ours failed, or libraries gave different tables."""
    failed = [one for one in results if one.own and one.remark.startswith("failed")]
    if failed:
        print(failed[0].trace, file=sys.stderr)
    return [f"{one.measured}: {one.case}: {one.remark}" for one in failed] + disagreements(results)


def earlier(question: Question, folder: Path, results: list[Result]) -> list[Result]:
    """These results together with the stored ones of the other cases, in the question's order."""
    file = folder / file_name(question)
    if not file.exists():
        return results
    measured = {result.case for result in results}
    stored = [one for one in json.loads(file.read_text())["results"] if one["case"] not in measured]
    kept = [Result.from_json(question, one) for one in stored if one["case"] in question.cases]
    order = list(question.cases)
    return sorted(results + kept, key=lambda result: order.index(result.case))


def arguments(description: str) -> argparse.Namespace:
    """The options that every benchmark takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--size", choices=["full", "quick", "tiny"], default="full")
    parser.add_argument("--only", help="libraries, separated by commas; writes no results")
    parser.add_argument("--cases", help="cases, separated by semicolons; others keep their results")
    parser.add_argument("--rounds", type=int, help="processes for each case and library")
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
        for one in question.libraries:
            if (only is None or one.name in only) and missing_part(one) is None:
                names = [n for n, case in question.cases.items() if options.size in case.sizes]
                answers = run_job(question, one, options.size, names, measure=False)
                print(one.name, answers or "ready", flush=True)
        return
    cases = options.cases.split(";") if options.cases else None
    try:
        folder = results_folder(options)
        rounds = options.rounds
        run(question, options.size, only=only, cases=cases, rounds=rounds, folder=folder)
    except RuntimeError as error:
        sys.exit(str(error))

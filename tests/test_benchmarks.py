"""Every benchmark runs in its smallest form; libraries that are not installed are named."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from benchmarks import __main__ as every
from benchmarks import charts, harness, report, side_by_side, summary
from benchmarks.question import Case, Library, NotOffered, Question, Target


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path_factory):
    """A cache of this run's own, which its processes share."""
    folder = tmp_path_factory.getbasetemp() / "benchmarks"
    monkeypatch.setattr(harness, "CACHE", folder)
    return folder


def ours(question: Question) -> list[str]:
    return [one.name for one in question.libraries if one.own][:1]


JOBS = """
import json, sys
from benchmarks.worker import perform
for line in sys.stdin:
    answers = perform(json.loads(line))
    print("ANSWERS", json.dumps(answers), flush=True)
"""


@pytest.fixture(scope="module")
def perform(tmp_path_factory, project_environment) -> Iterator[Callable[[dict], dict]]:
    """One process for many jobs, as most of what a process of its own does is to import."""
    folder = str(tmp_path_factory.getbasetemp() / "benchmarks")
    with subprocess.Popen(
        [sys.executable, "-c", JOBS],
        env={**project_environment, "FERMION_BENCH_CACHE": folder},
        cwd=harness.PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        asked, answered = process.stdin, process.stdout
        assert asked is not None
        assert answered is not None

        def ask(job: dict) -> dict:
            print(json.dumps(job), file=asked, flush=True)
            for line in answered:
                if line.startswith("ANSWERS "):
                    return json.loads(line.removeprefix("ANSWERS "))
            pytest.fail("the process died")

        yield ask
        asked.close()


@pytest.mark.parametrize("name", every.QUESTIONS)
def test_each_benchmark_runs_in_its_smallest_form_without_its_rivals(
    name, tmp_path, capsys, monkeypatch, perform
):
    """Ours alone; every case gives a figure or says why there is none.

    A question whose cases need a process of their own each gets them; others share one here.
    """
    question = importlib.import_module(f"benchmarks.{name}").QUESTION
    if not question.isolated:

        def run_job(question, library, size, cases, *, measure=True):
            job = {"question": question.module, "library": library.name, "size": size}
            return perform({**job, "cases": list(cases), "measure": measure})

        monkeypatch.setattr(harness, "run_job", run_job)
    results = harness.run(question, "tiny", only=ours(question), folder=tmp_path)
    assert results
    for result in results:
        assert result.rounds or result.remark.startswith("not offered")
    stored = json.loads((tmp_path / f"{name}.json").read_text())
    assert stored["machine"]["cores"] >= 1
    assert stored["machine"]["packages"]["numpy"]
    assert [one["case"] for one in stored["results"]] == [one.case for one in results]
    assert question.title in capsys.readouterr().out


@pytest.mark.parametrize("name", every.QUESTIONS)
def test_targets_name_cases_and_libraries_that_exist(name):
    """A target with a slip of the pen would never be judged."""
    question = importlib.import_module(f"benchmarks.{name}").QUESTION
    names = {one.name for one in question.libraries}
    assert question.module == f"benchmarks.{name}"
    assert len(names) == len(question.libraries)
    for target in question.targets:
        assert target.case in question.cases
        assert target.measured in names
        assert target.of in {None, "best rival", *question.cases, *names}


def figure(value):
    return Case(lambda library, size: lambda: {"seconds": value[library.name]})


OURS = Library("ours", own=True)
RIVAL = Library("rival")
SLOWER = Library("slower rival")
PLAIN = Library("plain", reference=True)
QUESTION = Question(
    module="question",
    title="title",
    cases={"a": figure({}), "b": figure({})},
    libraries=(OURS, RIVAL, SLOWER, PLAIN),
)


def measured(**seconds):
    results = [
        harness.Result(one.name, case, one.own, one.reference)
        for one in QUESTION.libraries
        for case in QUESTION.cases
    ]
    for result in results:
        result.rounds = [{"seconds": value} for value in seconds[result.measured.split()[0]]]
    return results


def test_a_verdict_compares_the_median_with_the_bound_the_best_rival_or_another_case():
    """References, which do less than was asked for, are no rivals."""
    results = measured(ours=[3.0, 2.0, 90.0], rival=[4.0], slower=[8.0], plain=[0.5])
    targets = (
        Target("a", 3.0),
        Target("a", 2.9),
        Target("a", 1.0, of="best rival"),
        Target("a", 0.7, of="best rival"),
        Target("a", 1.0, of="b"),
        Target("a", 7.0, of="plain"),
        Target("a", 3.0, metric="bytes"),
    )
    targets = tuple(replace(target, measured="ours") for target in targets)
    question = replace(QUESTION, targets=targets)
    judged = report.verdicts(question, results)
    assert [verdict.met for verdict in judged] == [True, False, True, False, True, True, False]
    assert judged[3].bound == pytest.approx(2.8)
    assert math.isclose(report.best_rival(results, "a", "seconds"), 4.0)
    assert "MISSED" in judged[1].text()
    assert "not measured" in judged[6].text()


def test_libraries_that_are_not_installed_are_named_in_the_table(tmp_path, capsys):
    """Neither a failure nor silence."""
    absent = Library("absent", modules=("no_such_module.part",), package="no-such-package")
    elsewhere = Library("elsewhere", package="pypaimon", python=".venv-none")
    question = Question("question", "title", {}, (absent, elsewhere))
    harness.run(question, "tiny", folder=tmp_path)
    text = capsys.readouterr().out
    assert "missing: absent: needs no-such-package" in text
    assert "missing: elsewhere: needs pypaimon" in text
    missing = json.loads((tmp_path / "question.json").read_text())["missing"]
    assert sorted(missing) == ["absent", "elsewhere"]


def test_libraries_that_read_different_tables_stop_the_benchmark():
    """Speed for other rows is not speed."""
    results = measured(ours=[1.0], rival=[1.0], slower=[1.0], plain=[1.0])
    assert harness.disagreements(results) == []
    results[0].rounds[0] |= {"rows": 10, "columns": 2}
    results[2].rounds[0] |= {"rows": 11, "columns": 2}
    assert len(harness.disagreements(results)) == 1


def test_what_is_not_offered_is_no_failure():
    """A format that has no such operation is printed with its reason."""
    result = harness.Result("rival", "a", own=False, reference=False)
    assert harness.note_trouble({"not_offered": str(NotOffered("takes no filter"))}, result)
    assert result.remark == "not offered: takes no filter"
    assert not harness.note_trouble({"seconds": 1.0}, result)


def test_the_page_on_performance_shows_the_stored_results():
    """Figures get onto the page by `python -m benchmarks.summary`, not by hand."""
    page = summary.PAGE.read_text()
    assert page.count(summary.BEGIN) == page.count(summary.END) == 1
    assert summary.updated(page, summary.text()) == page


@pytest.mark.parametrize("page", summary.SIDE_BY_SIDE, ids=lambda page: page.name)
def test_the_tables_side_by_side_show_the_stored_results(page):
    """Each page has one table, with a figure of Fermion and of some other library in every row."""
    text = page.read_text()
    assert text.count(side_by_side.BEGIN) == text.count(side_by_side.END) == 1
    assert side_by_side.updated(text, summary.SIDE_BY_SIDE[page], summary.RESULTS) == text
    table = side_by_side.text(summary.SIDE_BY_SIDE[page], summary.RESULTS).split("\n\n")[0]
    for line in table.splitlines()[2:]:
        own, *others = line.strip("| ").split(" | ")[1:]
        assert own != "-", line
        assert any(other != "-" for other in others), line
        assert line.count("**") == 2, line


@pytest.mark.long
@pytest.mark.parametrize("picture", summary.PICTURES, ids=lambda picture: picture.stem)
def test_the_pictures_show_the_stored_results(picture):
    """Bars are as long as their figures say; pages have what `benchmarks.summary` draws."""
    title, rows = summary.PICTURES[picture]
    assert charts.drawn(title, rows, summary.RESULTS) == picture.read_text()

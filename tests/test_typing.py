"""What type checkers say of the public API: wrong names of options are errors."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import fermion
from fermion import FermionFile, WriteOptions, Writer
from fermion.options import WriteOverrides
from fermion_table import Catalog, Scan, Table
from fermion_table.engine import Transaction

PROJECT = Path(__file__).resolve().parent.parent
CASES = "tests/typing_cases.py"


def test_wrong_options_are_errors_and_results_have_their_types(project_environment):
    """mypy, with the cache of `make lint`; a GitHub workflow runs pyright on the same file."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", CASES],
        cwd=PROJECT,
        env=project_environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_programs_of_users_pass_mypy_strict_and_their_mistakes_do_not(project_environment):
    """Without the settings of this project, the packages found as if they were installed."""
    programs = sorted(map(str, (PROJECT / "tests" / "typed_programs").glob("*.py")))
    assert len(programs) == 5
    options = ["--strict", "--config-file=", "--cache-dir", ".mypy_cache/strict"]
    options += ["--disable-error-code", "import-untyped"]  # pyarrow and pandas have no types
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *programs],
        cwd=PROJECT,
        env=project_environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_rows_filters_and_results_have_a_type():
    """None of them is Any: of rows and filters it is a union of `fermion.typing`."""
    functions = [fermion.write_table, fermion.read_table, fermion.add_columns]
    for owner in (FermionFile, Writer, Table, Scan, Catalog, Transaction):
        functions += [getattr(owner, name) for name in vars(owner)]
    functions = [function for function in functions if inspect.isfunction(function)]
    public = [function for function in functions if not function.__name__.startswith("_")]
    places = {
        f"{function.__qualname__}: {place}": annotation
        for function in public
        for place, annotation in function.__annotations__.items()
        if place in ("data", "source", "filter", "keys", "return")
    }
    assert len(places) > 100
    assert [place for place, annotation in places.items() if annotation == "Any"] == []


def test_the_options_of_calls_are_those_of_write_options():
    """Each is written twice: a type checker can't derive one from the other."""
    options = get_type_hints(WriteOptions)
    names = {field.name for field in dataclasses.fields(WriteOptions)}
    assert get_type_hints(WriteOverrides) == {name: options[name] for name in names}

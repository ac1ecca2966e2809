"""What type checkers say of the public API: wrong names of options are errors."""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
from pathlib import Path
from typing import get_type_hints

import fermion
from fermion import FermionFile, WriteOptions, Writer
from fermion.options import WriteOverrides
from fermion_table import Catalog, Scan, Table
from fermion_table.engine import Transaction

PROJECT = Path(__file__).resolve().parent.parent


def test_mypy_checks_programs_of_users_strictly_and_finds_their_mistakes():
    """`make lint` runs it: a mistake that it no longer finds is a comment too many, an error.

    A GitHub workflow runs pyright on the file of cases.
    """
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert "tests.typed_programs" in settings["packages"]
    assert settings["modules"] == ["tests.typing_cases"]
    assert settings["check_untyped_defs"]
    assert settings["disallow_untyped_defs"]
    ours = {f"{name}.*" for name in settings["packages"] if not name.startswith("tests")}
    (exports,) = [each for each in settings["overrides"] if "implicit_reexport" in each]
    assert (set(exports["module"]), exports["implicit_reexport"]) == (ours, False)
    (strict,) = [each for each in settings["overrides"] if "warn_unused_ignores" in each]
    assert strict.pop("module") == ["tests.typed_programs.*", "tests.typing_cases"]
    assert set(strict.values()) == {True}
    folder = PROJECT / "tests" / "typed_programs"
    texts = [path.read_text() for path in (*folder.glob("*.py"), PROJECT / "tests/typing_cases.py")]
    assert len(texts) == 6
    assert sum(text.count("# type: ignore[") for text in texts) > 30


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

"""What `import fermion` and the first read load, that every exported name is found; dataclasses."""

from __future__ import annotations

import ast
import copy
import dataclasses
import importlib
import inspect
import itertools
import pickle
import pydoc
import re
import sys
from dataclasses import KW_ONLY, field
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import pyarrow as pa
import pytest

import fermion
import fermion_table
from fermion import exports
from tests.kit.processes import modules_after

HEAVY = {"asyncio", "fsspec", "importlib.metadata", "pyarrow.compute", "sqlglot"}


def test_importing_the_package_loads_none_of_its_modules_but_the_table_of_names():
    """Cheaper than any threshold in seconds, which a busy machine would miss."""
    loaded = modules_after("import fermion")
    assert {name for name in loaded if name.startswith("fermion.")} == {"fermion.exports"}
    assert not {"numpy", "pyarrow", *HEAVY} & loaded


def test_reading_columns_of_a_local_file_loads_neither_file_systems_nor_compute_functions(tmp_path):
    """Writing is left to this process, so that only the reader's modules count."""
    path = tmp_path / "a.fmn"
    fermion.write_table(pa.table({"a": [1, 2], "b": ["x", None]}), path)
    loaded = modules_after(f"import fermion\nfermion.open({str(path)!r}).read(['b'])")
    assert not HEAVY & loaded
    assert not {"fermion.parquet.convert", "fermion.writing.file", "fermion.cli"} & loaded


def test_a_filter_and_a_url_work_in_a_process_that_has_loaded_nothing_else(tmp_path):
    """What is loaded late is loaded all the same."""
    path = tmp_path / "a.fmn"
    fermion.write_table(pa.table({"a": [1, 2, 3]}), path)
    code = (
        f"import fermion\n"
        f"assert fermion.read_table('file://{path}', filter='a IN (2, 3) OR 7 = a').num_rows == 2"
    )
    assert {"fsspec", "pyarrow.compute", "sqlglot"} <= modules_after(code)


@pytest.mark.parametrize(
    "name", ["fermion", "fermion.engine", "fermion_table", "fermion_table.engine"]
)
def test_the_names_for_type_checkers_are_those_that_a_running_program_finds(name):
    """Each is listed twice: as an import under TYPE_CHECKING, and in the table."""
    module = importlib.import_module(name)
    package = name.partition(".")[0]
    tree = ast.parse(Path(module.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    checked = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name  # so that it is exported, by the rules of type checkers
    }
    call = next(node for node in ast.walk(tree) if isinstance(node, ast.Call))
    loaded = {
        name: f"{package}.{home}"
        for home, names in ast.literal_eval(call.args[1]).items()
        for name in names
    }
    assert checked == loaded
    assert sorted(checked) == sorted(module.__all__)
    assert all(getattr(module, exported) is not None for exported in module.__all__)


def test_names_that_moved_to_the_module_for_engines_are_found_with_a_warning():
    with pytest.warns(DeprecationWarning, match=r"is now fermion_table\.engine\.WriterMessage"):
        assert fermion_table.WriterMessage is fermion_table.engine.WriterMessage
    with pytest.warns(DeprecationWarning, match=r"fermion_table\.engine\.MAIN"):
        from fermion_table import MAIN
    assert MAIN == "main"


def test_submodules_are_attributes_and_unknown_names_are_attribute_errors():
    assert fermion.errors.FermionError is fermion.FermionError
    with pytest.raises(AttributeError, match="no attribute 'read_tabel'"):
        _ = fermion.read_tabel
    with pytest.raises(AttributeError, match="no attribute '__wrapped__'"):
        _ = fermion.__wrapped__


def test_dir_shows_the_exported_names_alone_and_loads_none_of_them():
    """What an editor completes after the dot; `fermion.exports` and the like are found by name."""
    loaded = modules_after("import fermion\nassert dir(fermion) == sorted(fermion.__all__)")
    assert {name for name in loaded if name.startswith("fermion.")} == {"fermion.exports"}


@pytest.mark.parametrize("package", [fermion, fermion_table])
def test_help_describes_the_exported_names(package):
    """`help` gathers what `dir` lists; the functions of `fermion` are loaded for it."""
    text = pydoc.render_doc(package, renderer=pydoc.plaintext)
    names = [name for name in package.__all__ if inspect.isroutine(getattr(package, name))]
    assert dir(package) == sorted(package.__all__)
    assert [name for name in names if not re.search(rf"^    {name}\b.*\(", text, re.M)] == []
    assert text.index("DESCRIPTION") < text.index("PACKAGE CONTENTS")


OPTIONS = [
    dict(zip(("frozen", "slots", "eq", "repr", "kw_only"), flags, strict=True))
    for flags in itertools.product((False, True), repeat=5)
]


def made(decorator: Any, options: dict[str, bool]) -> Any:
    """A class with all kinds of fields."""

    @decorator(**options)
    class Record:
        """A record."""

        first: int
        _: KW_ONLY
        second: list[int] = field(default_factory=list)
        third: str = field(default="x", repr=False)
        fourth: float = field(default=1.5, compare=False)
        fifth: int = field(default=7, init=False)
        sixth: list[int] = field(init=False, default_factory=lambda: [1])

        def __post_init__(self) -> None:
            if self.first < 0:
                raise ValueError("below zero")

    Record.__qualname__ = "Record"
    return Record


def outcome(action: Any) -> Any:
    try:
        return action()
    except (AttributeError, TypeError, ValueError) as error:
        return type(error), str(error).replace("dataclasses.", "")


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_records_behave_as_dataclasses(
    options: dict[str, bool], compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each option, and each thing that can be done: the same value, or the same error.

    As the first values of a class are made, and as all are when someone asked how.
    """
    found = []
    for decorator in (dataclasses.dataclass, exports.dataclass):
        record = made(decorator, options)
        monkeypatch.setattr(sys.modules[__name__], "Record", record, raising=False)
        assert not compiled or record.__init__
        one, same, other = record(first=1), record(first=1, fourth=2.0), record(first=2, third="y")
        plain = record(first=1, second=(), third="z")
        object.__setattr__(plain, "sixth", ())
        shown = [repr(each).partition(" at ")[0] for each in (one, other)]
        doing = {
            "missing": outcome(record),
            "too many": outcome(lambda kind=record: kind(1, [])),
            "positional": outcome(lambda kind=record: kind(1).first),
            "twice": outcome(lambda kind=record: kind(1, first=1)),
            "unknown": outcome(lambda kind=record: kind(first=1, nothing=2)),
            "shown": shown if options["repr"] else len(shown),
            "equal": [one == same, one != other, one == 3, one.__eq__(3)],
            "hash": outcome(lambda each=plain: isinstance(hash(each), int)),
            "hashed": options["frozen"] and options["eq"] and hash(plain),
            "list in hash": options["eq"] and outcome(lambda each=one: hash(each)),
            "set": outcome(lambda each=one: setattr(each, "third", "x")),
            "deleted": outcome(lambda each=other: delattr(each, "third")),
            "pickled": dataclasses.asdict(pickle.loads(pickle.dumps(one))),
            "copied": dataclasses.asdict(copy.deepcopy(one)),
            "replaced": dataclasses.asdict(dataclasses.replace(one, first=5)),
            "fresh lists": one.second is not same.second and one.sixth is not same.sixth,
            "checked": outcome(lambda kind=record: kind(first=-1)),
            "matched": record.__match_args__,
            "signature": str(inspect.signature(record)),
            "doc": record.__doc__,
        }
        found.append(doing)
    assert found[0] == found[1]


def test_a_record_keeps_methods_of_its_own_and_inherits_fields() -> None:
    """As with the standard library, what a class defines is not replaced."""

    @exports.dataclass(frozen=True, slots=True)
    class One:
        first: int

        def __repr__(self) -> str:
            return "one"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, One)

        def __hash__(self) -> int:
            return 3

    @exports.dataclass(frozen=True, slots=True)
    class Two(One):
        second: int = 4

    assert (repr(One(1)), One(1) == One(2), hash(One(1))) == ("one", True, 3)
    assert Two(1) == Two(1, 4) != Two(2)
    assert hash(Two(1)) == hash((1, 4))
    assert repr(Two(1)).endswith("Two(first=1, second=4)")
    assert One.__doc__


def test_a_module_that_is_loaded_when_it_is_asked_for_is_pickled_as_its_name() -> None:
    """As functions that programs give to Spark may use one."""
    for module in (exports.LoadedWhenAskedFor("json"), exports.dataclasses):
        loaded = pickle.loads(pickle.dumps(module))
        assert loaded.__getattr__("__name__") == module.__getattr__("__name__")
        assert copy.deepcopy(module).__getattr__("__name__") in ("json", "dataclasses")


class _Named(exports.NamedTuple):
    """A pair."""

    a: int
    b: list[str] | None = None

    def first(self) -> int:
        return self.a


class _StandardNamed(NamedTuple):
    a: int
    b: list[str] | None = None


def test_named_tuples_are_those_of_the_standard_library():
    value, standard = _Named(5), _StandardNamed(5)
    assert value == standard == (5, None)
    assert repr(value) == repr(standard).replace("_StandardNamed", "_Named")
    assert type(value).__mro__[1:] == type(standard).__mro__[1:]
    assert pickle.loads(pickle.dumps(value)) == value
    assert type(pickle.loads(pickle.dumps(value))) is _Named
    assert (value.first(), _Named.__doc__) == (5, "A pair.")
    for name in ("_fields", "_field_defaults", "__match_args__", "__module__", "__slots__"):
        assert getattr(_Named, name) == getattr(_StandardNamed, name)
    assert get_type_hints(_Named) == get_type_hints(_StandardNamed)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        _Named()


def test_a_named_tuple_refuses_fields_in_an_order_that_the_standard_one_refuses():
    body = {"__annotations__": {"first": "int", "second": "int"}, "first": 0, "__module__": ""}
    with pytest.raises(TypeError, match="without a default follows"):
        type(exports.NamedTuple)("X", (exports.NamedTuple,), body)

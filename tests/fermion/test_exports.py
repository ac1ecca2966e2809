"""What `import fermion` and the first read load, and that every exported name is found."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import re
from pathlib import Path

import pyarrow as pa
import pytest

import fermion
import fermion_table
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
        f"assert fermion.read_table('file://{path}', filter='a IN (2, 3)').num_rows == 2"
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

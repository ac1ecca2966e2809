"""Every parameter of every public function and method is given wrong values."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import fermion
import fermion_table
from tests.acceptance import catalog_calls, file_calls, table_callables, table_calls
from tests.acceptance.wrong_arguments import as_numpy, called, findings, public_callables

TABLE_CALLS = {**table_calls.CALLS, **catalog_calls.CALLS}


@pytest.fixture(scope="module")
def prepared_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of small files, to be copied."""
    directory = tmp_path_factory.mktemp("files")
    file_calls.prepare(directory)
    return directory


def test_every_public_callable_of_the_file_format_has_a_valid_call():
    """A new one, which this fails for, needs an entry in `file_calls`."""
    known = set(public_callables(fermion, file_calls.ALSO)) - file_calls.MADE_BY_THE_PACKAGE
    assert known == file_calls.CALLS.keys()


@pytest.mark.parametrize("name", file_calls.CALLS)
def test_wrong_arguments_of_files_are_refused_by_name_and_change_nothing(
    prepared_files: Path, tmp_path: Path, name: str
):
    """One parameter after the other; at last the valid call, with values of NumPy."""
    directory = Path(shutil.copytree(prepared_files, tmp_path / "files"))
    case = file_calls.CALLS[name](directory)
    found = findings(name, case, directory, file_calls.UNTYPED)
    assert not found, "\n".join(found)
    called(case.call, as_numpy(case.arguments))


@pytest.fixture(scope="module")
def prepared_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a small table, to be copied."""
    directory = tmp_path_factory.mktemp("tables")
    table_calls.prepare(directory)
    return directory


def test_every_public_callable_of_tables_has_a_valid_call():
    """A new one, which this fails for, needs an entry in `table_calls` or `catalog_calls`."""
    known = set(public_callables(fermion_table, table_callables.ALSO))
    known |= set(public_callables(fermion_table.engine))
    known -= {f"Transaction{name}" for name in known if name.startswith("Table.")}  # the same
    known -= table_callables.MADE_BY_THE_PACKAGE | table_callables.CALLED_FOR_EVERY_FILE
    known -= table_callables.BETWEEN_WRITERS | table_callables.BETWEEN_ENGINES
    known -= table_callables.NEEDS_PYPAIMON
    assert known == TABLE_CALLS.keys()


@pytest.mark.parametrize("name", TABLE_CALLS)
def test_wrong_arguments_of_tables_are_refused_by_name_and_change_nothing(
    prepared_table: Path, tmp_path: Path, name: str
):
    """One parameter after the other; at last the valid call, with values of NumPy."""
    directory = Path(shutil.copytree(prepared_table, tmp_path / "tables"))
    case = TABLE_CALLS[name](directory)
    found = findings(name, case, directory, table_calls.UNTYPED)
    assert not found, "\n".join(found)
    called(case.call, as_numpy(case.arguments))

"""Every parameter of every function for Spark is given wrong values, before any session is used."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import spark_ext
from fermion.errors import InvalidArgumentError
from fermion_table import Table
from tests.acceptance.wrong_arguments import called, findings, public_callables
from tests.kit.spark.spark_calls import CALLS, FURTHER_CALLS, SESSION, UNTYPED, prepare

WITHOUT_SESSION = {"configure", "expire", "remove_orphans"}
"""These ask their session for nothing, or are given none."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a small table and a Parquet file, to be copied."""
    directory = tmp_path_factory.mktemp("tables")
    prepare(directory)
    return directory


def test_every_public_function_for_spark_has_a_valid_call():
    """A new one, which this fails for, needs an entry in `spark_calls`."""
    assert set(public_callables(spark_ext)) == CALLS.keys()


@pytest.mark.parametrize("name", [*CALLS, *FURTHER_CALLS])
def test_wrong_arguments_for_spark_are_refused_by_name_and_change_nothing(prepared, tmp_path, name):
    """One parameter after the other; a parameter without an entry, or a session asked, fails."""
    directory = Path(shutil.copytree(prepared, tmp_path / "tables"))
    case = (CALLS | FURTHER_CALLS)[name](directory)
    found = findings(name, case, directory, UNTYPED)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "name", [name for name in CALLS | FURTHER_CALLS if name not in WITHOUT_SESSION]
)
def test_the_valid_calls_come_as_far_as_the_session(prepared, tmp_path, name):
    """So that a wrong value alone is what the other test sees refused."""
    directory = Path(shutil.copytree(prepared, tmp_path / "tables"))
    case = (CALLS | FURTHER_CALLS)[name](directory)
    with pytest.raises(Exception, match="the session was asked for"):
        called(case.call, case.arguments)


@pytest.mark.parametrize("size", [-1, 0, "huge", "-1MB"])
def test_a_size_that_is_none_is_refused_by_the_name_of_the_parameter(prepared, size):
    """By Spark's function and the table's own."""
    path = prepared / "t"
    for call in (
        lambda: spark_ext.compact(SESSION, path, target_size=size),
        lambda: Table.open(path).compact(target_size=size),
    ):
        with pytest.raises(InvalidArgumentError, match=f"target_size={size!r} is not a size"):
            call()

"""Every function for Spark is given something else than a session, a builder or a data frame."""

from __future__ import annotations

import inspect

import pytest

import spark_ext
from tests.acceptance.wrong_arguments import Case, findings, public_callables

FUNCTIONS = sorted(public_callables(spark_ext))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_no_session_and_no_data_frame_is_refused_by_name(tmp_path, name):
    """Before anything else: no other argument is valid here, and no session runs."""
    function = getattr(spark_ext, name)
    first, *others = inspect.signature(function).parameters.values()
    needed = [each.name for each in others if each.default is each.empty]
    arguments = {each: str(tmp_path / "t") for each in needed}

    def call(**given):
        return function(**given, **arguments)

    call.__signature__ = inspect.Signature([first.replace(kind=first.KEYWORD_ONLY)])
    case = Case(call, {first.name: None})
    assert not findings(name, case, tmp_path, {})


def test_only_spark_has_what_these_functions_take():
    """No wrong value is legal by the annotation of a first parameter, so that none is left out."""
    for name in FUNCTIONS:
        first = next(iter(inspect.signature(getattr(spark_ext, name)).parameters.values()))
        assert first.annotation in {"SparkSession", "SparkSession.Builder", "DataFrame"}

"""The first use in a process loads the modules of a list in the repository, and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.loaded_modules import LIST, SLOW, USES, loaded, make

LISTED = json.loads(LIST.read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("first_use")
    make(made)
    return made


@pytest.mark.parametrize("use", USES)
def test_the_modules_that_the_first_use_loads_are_those_of_the_list(use: str, folder: Path) -> None:
    """Each takes time of every process; ``python -m tests.kit.loaded_modules`` writes the list."""
    found, listed = set(loaded(use, folder)), set(LISTED[use])
    assert not found - listed, "loaded, and not in the list"
    assert not listed - found, "in the list, and not loaded any more"


def test_what_is_slow_to_import_is_loaded_by_none_of_them() -> None:
    """Without DuckDB, SQL of several lines or URLs nobody pays for these."""
    for use, modules in LISTED.items():
        assert not SLOW & set(modules), use
    assert not any(
        "pyarrow.compute" in LISTED[use] for use in USES if "some rows" in use or "blob" in use
    )

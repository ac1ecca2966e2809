"""The code of the pages for users runs: each page from top to bottom, in an empty directory.

Pages that need Spark run in tests/claims/spark_ext/test_examples.py, where one session serves all;
those that need a server run beside the tests of that storage.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.documents import (
    DOCS,
    NEED_A_SERVER,
    PROJECT,
    blocks,
    name_of,
    pages_for_users,
    uses_spark,
)
from tests.kit.page_runner import run_page

PAGES = pages_for_users()


@pytest.fixture
def west_of_greenwich() -> Iterator[None]:
    """Where local times, taken for UTC, are times at which there was no table yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


def runs_here(page: Path) -> bool:
    """Whether the code of a page needs nothing but this process."""
    return not uses_spark(page) and page.relative_to(DOCS).as_posix() not in NEED_A_SERVER


@pytest.mark.parametrize("page", [*filter(runs_here, PAGES)], ids=name_of)
@pytest.mark.usefixtures("west_of_greenwich")
def test_the_code_of_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run_page(page, tmp_path, monkeypatch)


def test_pages_that_need_a_server_have_a_test():
    for name, module in NEED_A_SERVER.items():
        assert DOCS / name in PAGES
        assert name in (PROJECT / module).read_text()


def test_the_pages_have_code_for_each_package():
    """The pattern that finds the blocks may break; then the test above would check nothing."""
    code = [block.code for page in PAGES for block in blocks(page) if block.language == "python"]
    assert len(code) > 50
    for package in ("fermion", "fermion_table", "spark_ext"):
        assert any(f"import {package}" in each or f"from {package}" in each for each in code)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nassert 1 == 2\n```\n", "assert 1 == 2"),
        ("```\nlost()\n```\n", "a block of no language"),
        ("```shell\nrm -r table\n```\n", "rm is not a program"),
        ("```shell\nfermion verify none.fermion\n```\n", "fermion verify"),
        ("```python\nprint(1)\n```\n\n```text output\n2\n```\n", "'1"),
    ],
)
def test_code_that_does_not_run_is_found(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    page = tmp_path / "page.md"
    page.write_text(text)
    monkeypatch.setattr("tests.kit.page_runner.PROJECT", tmp_path)
    with pytest.raises((AssertionError, pytest.fail.Exception)) as caught:
        run_page(page, tmp_path, monkeypatch)
    assert message in str(caught.getrepr(style="long"))

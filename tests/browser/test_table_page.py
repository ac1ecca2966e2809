"""The page of a table in a real browser: rows, columns, the history slider and hostile words."""

from __future__ import annotations

import html
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fermion_table import Table
from tools.chromium.browser import Browser, Page

pytestmark = pytest.mark.services
HOSTILE = "</script><img src=x onerror='window.broken = 1'>\u202e\x1b[2J\u2028"
SHOWN = HOSTILE.replace("\u202e\x1b[2J\u2028", r"\u202e\u001b[2J\u2028")


def opened(browser: Browser, path: Path, text: str) -> Page:
    path.write_text(text, encoding="utf-8")
    return browser.open(path)


def closed(page: Page) -> None:
    """Nothing failed, nothing was fetched, and no word became an element."""
    assert page.errors() == []
    assert len(page.requests()) == 1
    assert page.evaluate("window.broken") is None
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    page.close()


def slide(page: Page, commit: int) -> None:
    page.evaluate(
        f"(() => {{ const slider = document.querySelector('#when'); slider.value = {commit};"
        "slider.dispatchEvent(new Event('input')); })()"
    )
    page.settle()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Commits of each kind, hostile names and values, and a null."""
    path = tmp_path_factory.mktemp("page") / "t"
    rows = pa.table({"id": [1, 2], HOSTILE: ["a", None]})
    made = Table.create(path, rows, durability="fast", message=HOSTILE)
    made.append(pa.table({"id": [3], HOSTILE: [HOSTILE]}))
    made.update("id = 1", {"id": "10"})
    made.add_columns_with({"double": "id * 2"})
    made.compact()
    return made


def test_the_page_shows_rows_columns_and_what_each_commit_changed(browser, table, tmp_path):
    """Found by the slider, the buttons and the keys; the calls that undo it are there to copy."""
    page = opened(browser, tmp_path / "page.html", str(table.show()))
    assert page.text("h1") == table.location
    assert SHOWN in page.text("section table")
    assert page.text("section table .soft") == "null"
    assert page.text("#commit h3").endswith("compact")
    slide(page, 3)
    assert page.text("#commit tr.delete td") == "delete"
    changed = page.evaluate(
        "[...document.querySelectorAll('#commit tbody tr')].map((row) =>"
        "[...row.cells].slice(0, 2).map((cell) => cell.textContent))"
    )
    assert sorted(changed) == [["delete", "1"], ["insert", "10"]]
    assert "table.undo(commit=3)" in page.text("#commit")
    page.evaluate("document.querySelector('[title=\"The snapshot after\"]').click()")
    assert "add column double" in page.text("#commit")
    page.evaluate("document.querySelector('#when').focus()")
    page.press("ArrowLeft")
    assert "snapshot 3" in page.text("#commit h3")
    page.type("#search", "dou")
    assert page.evaluate("document.querySelectorAll('#columns tbody tr').length") == 1
    page.scheme("dark")
    closed(page)


def test_a_notebook_shows_the_page_in_a_frame_that_runs_nothing_else(browser, table, tmp_path):
    """Sandboxed, with the page's own policy; its height is bounded."""
    text = table.show()._repr_html_()
    page = opened(browser, tmp_path / "notebook.html", f"<body>{text}</body>")
    assert page.evaluate("document.querySelector('iframe').getAttribute('sandbox')") == (
        "allow-scripts"
    )
    assert page.evaluate("document.querySelector('iframe').contentDocument") is None
    assert page.evaluate("document.querySelector('iframe').clientHeight") == 720
    assert html.escape(str(table.show()).splitlines()[0]) in text
    closed(page)


def test_a_difference_is_a_page_of_its_own(browser, table, tmp_path):
    """Written by the command; its rows and files are those of the difference."""
    from fermion.__main__ import main

    target = tmp_path / "diff.html"
    assert main(["table", "diff", table.location, "1", "3", "--html", str(target)]) == 0
    page = browser.open(target)
    assert page.text("h2") == "Difference"
    for line in str(table.diff(1, 3)).splitlines():
        assert line.strip() in page.text("#commit")
    assert SHOWN in page.text("#commit tr.insert")
    closed(page)


def test_pages_of_wide_empty_and_keyed_tables_are_small_and_whole(browser, tmp_path):
    """Ten thousand columns cost no more than the first of them; no rows are said to be none."""
    names = [f"column {number}" for number in range(10_000)]
    wide = Table.create(
        tmp_path / "wide", pa.table(dict.fromkeys(names, np.arange(3.0))), durability="fast"
    )
    text = str(wide.show())
    assert len(text) < 200_000
    page = opened(browser, tmp_path / "wide.html", text)
    assert "9,970 more columns" in page.text("section")
    assert "8,000 more columns not listed" in page.text("#columns")
    assert page.evaluate("document.querySelectorAll('*').length") < 1_500
    closed(page)
    keyed = Table.create(
        tmp_path / "keyed", pa.schema([("id", pa.int64())]), primary_key="id", durability="fast"
    )
    page = opened(browser, tmp_path / "empty.html", str(keyed.show()))
    assert "The table has no rows." in page.text("section")
    closed(page)
    keyed.upsert(pa.table({"id": [1, 2]}))
    keyed.delete("id = 1")
    page = opened(browser, tmp_path / "keyed.html", str(keyed.show()))
    assert page.text("#commit tr.delete").split() == ["delete", "1"]
    assert page.text("#columns tbody tr").split()[-4:] == ["≥", "1", "≤", "2"]
    assert "limits from the metadata of files" in page.text("#columns")
    closed(page)

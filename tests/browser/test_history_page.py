"""The history of a table in a real browser: the graph, sizes, levels, search and hostile words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fermion.html.page import web_page
from fermion_table import Table
from fermion_table.inspection.history_map import SCRIPTS, history_map
from tools.chromium.browser import Browser, Page

pytestmark = pytest.mark.services
HOSTILE = "</script><img src=x onerror='window.broken = 1'>\u202e\x1b[2J\u2028"
MANY = 20_000


def opened(browser: Browser, folder: Path, text: str) -> Page:
    (folder / "history.html").write_text(text, encoding="utf-8")
    return browser.open(folder / "history.html")


def drawn(page: Page) -> dict[str, str]:
    """What the graph says that it has drawn."""
    return dict(page.evaluate("({...document.querySelector('#history').dataset})"))


def box(page: Page, selector: str) -> list[float]:
    return list(
        page.evaluate(
            f"(() => {{ const box = document.querySelector('{selector}').getBoundingClientRect();"
            "return [box.left, box.top, box.right, box.bottom]; })()"
        )
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A primary-key table with a branch, a tag, levels, and hostile words."""
    found = Table.create(
        tmp_path_factory.mktemp("history") / "t",
        pa.schema([("id", pa.int64()), ("p", pa.string())]),
        primary_key=["p", "id"],
        partition_by=["p"],
        properties={"bucket": "2"},
        durability="fast",
    )

    def rows(start: int) -> pa.Table:
        return pa.table({"id": np.arange(start, start + 50), "p": ["a", HOSTILE] * 25})

    found.upsert(rows(0), message=HOSTILE)
    found.tags.create("v1")
    found.upsert(rows(20), message="second")
    found.compact(full=True)
    found.upsert(rows(90))
    found.branches.create("side")
    Table.open(found.location, branch="side", durability="fast").upsert(rows(200))
    return found


@pytest.fixture
def page(browser: Browser, table: Table, tmp_path: Path) -> Iterator[Page]:
    found = opened(browser, tmp_path, table.history_html())
    yield found
    assert found.errors() == []
    assert len(found.requests()) == 1
    assert found.evaluate("window.broken") is None
    assert found.evaluate("document.querySelectorAll('img').length") == 0
    found.close()


def test_the_graph_shows_snapshots_branches_and_levels(page):
    """Selected by keys; sizes of another branch; every tree of the table."""
    assert drawn(page) | {"drawn": ""} == {
        "first": "0",
        "last": "6",
        "drawn": "",
        "along": "order",
        "branch": "main",
    }
    page.evaluate("document.querySelector('#history').focus()")
    page.press("End")
    assert page.text("#details h2") == "snapshot 5 (side) · append"
    page.press("ArrowUp")
    assert page.text("#details h2") == "snapshot 4 · append"
    page.choose("#branch", "side")
    page.choose("#along", "time")
    assert (drawn(page)["branch"], drawn(page)["along"]) == ("side", "time")
    assert page.evaluate("document.querySelector('#trees').dataset.trees") == "4"
    left, top, right, _ = box(page, "#trees")
    page.evaluate("document.querySelector('#trees').scrollIntoView()")
    left, top, right, _ = box(page, "#trees")
    page.move((left + right) / 2, top + 55)
    assert "level 0" in page.text("#tip")
    assert "1 sorted run" in page.text("#tip")
    page.scheme("dark")


def test_words_of_people_are_text_in_every_place(page):
    """In the table, the details and the tip, with escapes for what is not seen."""
    shown = HOSTILE.replace("\u202e\x1b[2J\u2028", r"\u202e\u001b[2J\u2028")
    assert shown in page.text("#snapshots")
    page.type("#search", "onerror")
    assert page.text("#found") == "1 snapshot found"
    page.press("Enter", text="\r")
    assert shown in page.text("#details")
    left, top, right, _ = box(page, "#history")
    page.move(left + 104 + 1.5 / 6 * (right - left - 112), top + 83)
    assert shown in page.text("#tip")


def many(table: Table) -> dict[str, Any]:
    """The map of a table with thousands of snapshots, made of that of one with few."""
    state = table._state
    found = history_map(state.store, state.snapshot, state.branch)
    columns = found["snapshots"]
    for name, values in columns.items():
        columns[name] = [values[place % 5] for place in range(MANY)]
    columns["id"] = list(range(MANY))
    columns["parent"] = list(range(-1, MANY - 1))
    columns["brought"] = [-1] * MANY
    columns["time_ms"] = [columns["time_ms"][0] + place * 60_000 for place in range(MANY)]
    found["branches"] = [found["branches"][0] | {"head": MANY - 1}]
    return found


def test_thousands_of_snapshots_are_drawn_and_zoomed(browser, table, tmp_path):
    """Where they share a pixel, one mark stands for several."""
    text = web_page("many", many(table), SCRIPTS)
    assert len(text) < 200 * MANY
    page = opened(browser, tmp_path, text)
    assert drawn(page)["last"] == str(MANY)
    assert int(drawn(page)["drawn"]) < 1_500
    assert page.evaluate("document.querySelectorAll('*').length") < 1_200
    milliseconds = page.evaluate(
        "new Promise((done) => { const begin = performance.now();"
        "document.querySelector('[title=\"Zoom in\"]').click();"
        "requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begin)));"
        "})"
    )
    assert milliseconds < 1_000
    first, last = int(drawn(page)["first"]), int(drawn(page)["last"])
    assert last - first == pytest.approx(MANY / 2, abs=2)
    page.type("#search", "12345")
    page.press("Enter", text="\r")
    assert int(drawn(page)["first"]) < 12_345 < int(drawn(page)["last"])
    assert page.text("#details h2") == "snapshot 12345 · create"
    assert page.errors() == []
    page.close()


def test_a_table_without_rows_has_a_page(browser, tmp_path):
    """It says so, without an error; keys do nothing wrong."""
    table = Table.create(
        tmp_path / "t", pa.schema([("id", pa.int64())]), primary_key=["id"], durability="fast"
    )
    page = opened(browser, tmp_path, table.history_html())
    page.evaluate("document.querySelector('#history').focus()")
    for key in ("ArrowRight", "+", "ArrowUp", "0", "Home"):
        page.press(key)
    assert page.text("#details h2") == "snapshot 0 · create"
    assert page.errors() == []
    page.close()

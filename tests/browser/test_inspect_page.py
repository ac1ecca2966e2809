"""The map of a file in a real browser: what is drawn, found, zoomed and shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fermion
from tools.chromium.browser import Browser, Page

pytestmark = pytest.mark.services
COLUMNS, STRIPES = 10_000, 3
HOSTILE = [
    "</script><script>window.broken = 1</script>",
    "<img src=x onerror='window.broken = 1'>",
    '"quoted" \\ & &lt;b&gt;',
    "\u202eright to left\u202c",
    "\x00\x1b[2J\ttab\u2028line",
    "ab" * 3_000,
]
# The box of the map, and the height of its cells: they end where the canvas does.
BOX = """(() => { const box = document.querySelector('#map').getBoundingClientRect();
  return [box.left, box.top, box.right, box.bottom]; })()"""
# How many colours the map has.
PIXELS = """(() => { const map = document.querySelector('#map');
  const found = map.getContext('2d').getImageData(0, 0, map.width, map.height);
  return new Set(new Uint32Array(found.data.buffer)).size; })()"""


@pytest.fixture(scope="module")
def wide(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page of a file with many columns, in several stripes."""
    folder = tmp_path_factory.mktemp("wide")
    numbers = np.arange(30)
    kinds = [
        pa.array(numbers),
        pa.array(numbers / 7),
        pa.array([None, "a", "b"] * 10),
        pa.nulls(30),
    ]
    table = pa.table({f"feature_{i:05d}": kinds[i % 4] for i in range(COLUMNS)})
    fermion.write_table(table, folder / "wide.fermion", stripe_rows=10)
    with fermion.open(folder / "wide.fermion") as file:
        text = file.layout_html()
    assert len(text) < 3_000_000
    (folder / "wide.html").write_text(text, encoding="utf-8")
    page = browser.open(folder / "wide.html")
    yield page
    assert page.errors() == []
    assert page.requests() == [(folder / "wide.html").as_uri()]
    page.close()


def drawn(page: Page) -> dict[str, str]:
    """What the map says that it has drawn."""
    return dict(page.evaluate("({...document.querySelector('#map').dataset})"))


def everything(page: Page) -> None:
    """Show the whole map again."""
    page.type("#search", "")
    page.evaluate("document.querySelector('[title=\"Show everything\"]').click()")
    page.settle()


def test_ten_thousand_columns_are_drawn_on_one_canvas(wide):
    """As many cells as the window has pixels for, and few elements."""
    everything(wide)
    found = drawn(wide)
    assert (found["first"], found["last"]) == ("0", str(COLUMNS))
    assert 500 * STRIPES < int(found["drawn"]) < 1_300 * STRIPES
    assert wide.evaluate(PIXELS) > 4
    assert wide.evaluate("document.querySelectorAll('*').length") < 1_200
    assert "10,000" in wide.text(".facts")
    assert "file" in wide.evaluate("document.title")


def test_the_page_reacts_within_a_second(wide):
    """Drawing everything, and searching all names; the machine may be slow and shared."""
    started = time.perf_counter()
    milliseconds = wide.evaluate(
        "(() => { const begin = performance.now(); const box = document.querySelector('#search');"
        "box.value = 'feature_0'; box.dispatchEvent(new Event('input'));"
        "return performance.now() - begin; })()"
    )
    wide.settle()
    assert milliseconds < 1_000
    assert time.perf_counter() - started < 10
    assert wide.text("#found") == "10,000 columns found"


def test_search_finds_a_column_and_goes_there(wide):
    """Enter zooms to it; the table shows it alone."""
    everything(wide)
    wide.type("#search", "FEATURE_04321")
    assert wide.text("#found") == "1 column found"
    assert wide.evaluate("document.querySelectorAll('#columns tbody tr').length") == 1
    wide.press("Enter", text="\r")
    found = drawn(wide)
    assert int(found["first"]) < 4_321 < int(found["last"])
    assert int(found["last"]) - int(found["first"]) < 40
    assert wide.text("#details h2").startswith("feature_04321 · stripe 0")
    wide.type("#search", "no such name")
    assert wide.text("#columns") == "No column has this name."


def test_zoom_by_keys_and_buttons_changes_what_is_drawn(wide):
    """The map is reached by the keyboard alone."""
    everything(wide)
    wide.evaluate("document.querySelector('#map').focus()")
    for _ in range(3):
        wide.press("+", text="+")
    found = drawn(wide)
    assert int(found["last"]) - int(found["first"]) == pytest.approx(COLUMNS / 8, abs=2)
    wide.press("0", text="0")
    assert drawn(wide)["last"] == str(COLUMNS)
    wide.press("End")
    assert wide.text("#details h2") == f"feature_{COLUMNS - 1:05d} · stripe 0"
    wide.press("ArrowLeft")
    wide.press("ArrowDown")
    assert wide.text("#details h2") == f"feature_{COLUMNS - 2:05d} · stripe 1"
    assert "No pages" not in wide.text("#details")


def test_pointing_shows_a_cell_and_a_click_its_pages(wide):
    """The same cell in both."""
    everything(wide)
    wide.type("#search", "feature_00005")
    wide.press("Enter", text="\r")
    left, _, right, bottom = wide.evaluate(BOX)
    wide.move((left + right) / 2, bottom - 20)
    tip = wide.text("#tip").splitlines()
    assert tip[0].startswith("feature_")
    assert tip[0].endswith("· stripe 2")
    wide.click((left + right) / 2, bottom - 20)
    assert wide.text("#details h2") == tip[0]
    assert wide.evaluate("document.querySelector('#tip').hidden") is False
    wide.move(2, 2)
    assert wide.evaluate("document.querySelector('#tip').hidden") is True


@pytest.mark.parametrize("colour", ["bytes", "ratio", "nulls", "encoding"])
def test_colours_are_explained_and_differ_in_the_dark(wide, colour):
    """A legend for each choice; light and dark pages have other colours."""
    everything(wide)
    wide.choose("#colour", colour)
    assert drawn(wide)["colour"] == colour
    assert wide.text("#legend")
    background = "getComputedStyle(document.body).backgroundColor"
    wide.scheme("light")
    light = wide.evaluate(background)
    wide.scheme("dark")
    assert wide.evaluate(background) != light
    assert wide.evaluate(PIXELS) > 3
    wide.scheme("light")


def page_of(browser: Browser, folder: Path, table: pa.Table, **options: Any) -> Page:
    fermion.write_table(table, folder / "a.fermion", **options)
    with fermion.open(folder / "a.fermion") as file:
        (folder / "a.html").write_text(file.layout_html(pages=True), encoding="utf-8")
    return browser.open(folder / "a.html")


def test_hostile_names_stay_text(browser, tmp_path):
    """Shown with escapes; nothing of them runs, in the table, the tip and the details."""
    page = page_of(browser, tmp_path, pa.table({name: [1, 2, 3] for name in HOSTILE}))
    shown = page.text("#columns")
    for text in (*HOSTILE[:3], r"\u202eright to left\u202c", r"\u0000\u001b[2J\u0009tab\u2028line"):
        assert text in shown
    page.evaluate("document.querySelectorAll('#columns td button').forEach((each) => each.click())")
    page.settle()
    left, _, right, bottom = page.evaluate(BOX)
    for part in range(len(HOSTILE)):
        page.move(left + 110 + part * (right - left - 110) / len(HOSTILE), bottom - 20)
    assert page.evaluate("window.broken") is None
    assert page.evaluate("document.querySelectorAll('img, iframe, script').length") == 2
    assert page.errors() == []
    page.close()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pa.table({}), "The file has no columns."),
        (pa.table({"a": pa.array([], pa.int64())}), "a"),
        (pa.table({"a": pa.nulls(5)}), "all null"),
    ],
    ids=["no columns", "no rows", "nulls"],
)
def test_a_file_with_nothing_in_it_has_a_page(browser, tmp_path, table, said):
    """It says so, without an error; keys do nothing."""
    page = page_of(browser, tmp_path, table)
    assert said in page.text("#columns")
    page.evaluate("document.querySelector('#map').focus()")
    for key in ("ArrowRight", "+", "End", "Home"):
        page.press(key)
    assert page.errors() == []
    page.close()


def test_groups_of_columns_are_told_in_words(browser, tmp_path, monkeypatch):
    """And a column in the middle of one is found."""
    monkeypatch.setattr("fermion.reading.layout_map.COLUMNS_MAX", 10)
    page = page_of(browser, tmp_path, pa.table({f"c{i:03d}": [i] for i in range(95)}))
    assert "10 columns that are neighbours" in page.text(".notice")
    page.type("#search", "c047")
    assert page.text("#found") == "1 column found"
    page.press("Enter", text="\r")
    assert page.text("#details h2").startswith("c040 and 9 more")
    assert page.errors() == []
    page.close()


def test_search_finds_keys_of_maps_and_paths_of_variants(browser, tmp_path):
    """Among the columns they are one line; a search lists those that it finds."""
    values = fermion.variant.from_json(['{"user": {"id": 7, "name": "Ada"}}'])
    maps = pa.array([[("age", 1.0), ("<b>", 2.0)]], pa.map_(pa.string(), pa.float64()))
    page = page_of(
        browser,
        tmp_path,
        pa.table({"event": values, "features": maps}),
        shred={"event": fermion.Shred(), "features": fermion.Shred()},
    )
    assert "user" not in page.text("#columns")
    page.type("#search", "USER.")
    assert page.text("#found") == "0 columns found, keys or paths: 2"
    assert "user.name" in page.text("#columns")
    assert "features" not in page.text("#columns")
    page.type("#search", "<b")
    assert page.text("#found") == "0 columns found, keys or paths: 1"
    page.press("Enter", text="\r")
    assert page.text("#details h2").startswith("features (2 keys)")
    assert page.errors() == []
    page.close()

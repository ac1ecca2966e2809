"""The sources of the documentation site: every page is found, every link and name leads somewhere.

`make docs` builds the site, and is strict, too; these tests need nothing but the files.
"""

from __future__ import annotations

import importlib
import re
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.kit.documents import DOCS, PROJECT, anchors, links, pages_in, site_settings

MARKDOWN = [
    *PROJECT.glob("*.md"),
    *DOCS.glob("**/*.md"),
    *PROJECT.glob("examples/**/*.md"),
]
NAMED_IN_THE_REFERENCE = re.compile(r"^(?:::: |`)([\w.]+)`?$", re.M)


def test_the_navigation_names_every_page_once():
    named = list(pages_in(site_settings()["nav"]))
    assert sorted(named) == sorted(
        page.relative_to(DOCS).as_posix() for page in DOCS.glob("**/*.md")
    )


def test_the_site_is_strict_about_links():
    """`make docs` fails where a link leads nowhere only if these are warnings."""
    validation = site_settings()["validation"]
    assert set(validation["links"].values()) == set(validation["nav"].values()) == {"warn"}
    assert {"not_found", "anchors", "unrecognized_links"} <= set(validation["links"])
    assert "mkdocs build --quiet --strict" in (PROJECT / "Makefile").read_text()


def test_links_lead_to_files_and_headings_of_the_project():
    """Folders have no page in the site: a page of `docs` names a file there."""
    headings = {page: anchors(page) for page in MARKDOWN}
    found = [(page, *link) for page in MARKDOWN for link in links(page)]
    assert len(found) > 100
    broken = []
    for page, target, anchor in found:
        place = (page.parent / target).resolve() if target else page
        inside = DOCS in place.parents or place == DOCS
        if not place.exists() or (inside and DOCS in page.parents and not place.is_file()):
            broken.append(f"{page.relative_to(PROJECT)}: {target}")
        elif anchor and place in headings and anchor not in headings[place]:
            broken.append(f"{page.relative_to(PROJECT)}: {target}#{anchor}")
    assert broken == []


@pytest.mark.parametrize("package", ["fermion", "fermion_table", "spark_ext"])
def test_the_reference_has_every_public_name(package: str):
    """Each name of `__all__` once; and no name that is not there."""
    page = (DOCS / "api" / f"{package}.md").read_text()
    named = NAMED_IN_THE_REFERENCE.findall(page)
    assert len(named) == len(set(named))
    public = {f"{package}.{name}" for name in importlib.import_module(package).__all__}
    if package == "fermion_table":
        engine = importlib.import_module("fermion_table.engine")
        public |= {f"fermion_table.engine.{name}" for name in engine.__all__}
    assert public - set(named) == set()
    for name in set(named) - public:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


PICTURES = sorted((DOCS / "images").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"
WIDTHS = {"name": 9.5, "on": 9.5, "text": 6.8, "ontext": 6.8, "mono": 7.6}
"""Pixels of a letter in a wide font, by the class of a text."""


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_readable_in_light_and_dark(picture: Path):
    """It has a background, other colours for dark pages, a title, and no foreign parts."""
    text = picture.read_text()
    root = ElementTree.fromstring(text)
    assert root.find(f"{SVG}title").text
    assert "prefers-color-scheme: dark" in text
    assert root.find(f"{SVG}rect").get("class") == "card"
    assert not re.search(r"<(script|image|foreignObject)|href=|url\(", text)
    assert any(picture.name in page.read_text() for page in MARKDOWN)


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_the_texts_of_a_picture_fit_their_boxes(picture: Path):
    """The smallest box around the place of a text also has room for its letters."""
    root = ElementTree.fromstring(picture.read_text())
    boxes = [
        tuple(float(box.get(name)) for name in ("x", "y", "width", "height"))
        for box in root.iter(f"{SVG}rect")
    ]
    texts = list(root.iter(f"{SVG}text"))
    assert len(texts) > 10
    for text in texts:
        x, y = float(text.get("x")), float(text.get("y"))
        width = len(text.text) * WIDTHS[text.get("class")]
        left = x - width / 2 if text.get("text-anchor") == "middle" else x
        around = [
            box
            for box in boxes
            if box[0] <= x <= box[0] + box[2] and box[1] <= y <= box[1] + box[3]
        ]
        box = min(around, key=lambda each: each[2] * each[3])
        assert box[0] <= left, text.text
        assert left + width <= box[0] + box[2], text.text


@pytest.mark.parametrize("package", ["fermion", "fermion_table", "spark_ext"])
def test_the_page_on_the_architecture_has_the_layers_of_the_contracts(package: str):
    """The tables of docs/architecture.md list them in the same order."""
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    contracts = {each["id"]: each for each in settings["tool"]["importlinter"]["contracts"]}
    layers = [sorted(layer.split(" | ")) for layer in contracts[package]["layers"]]
    text = (DOCS / "architecture.md").read_text()
    rows = text.split(f"| layer of `{package}` | holds |\n|---|---|\n")[1].split("\n\n")[0]
    first = [row.split(" | ")[0] for row in rows.splitlines()]
    assert first.pop() == "| modules of the package"
    assert [sorted(re.findall(r"`(\w+)`", names)) for names in first] == layers


def test_the_page_on_troubleshooting_names_every_error():
    """Each public error of files and tables has a cause and a way out; no other name is there."""
    text = (DOCS / "guide" / "troubleshooting.md").read_text()
    named = set(re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", text, re.M))
    errors = {
        name
        for module in ("fermion", "fermion_table")
        for name in importlib.import_module(module).__all__
        if isinstance(getattr(importlib.import_module(module), name), type)
        and issubclass(getattr(importlib.import_module(module), name), Exception)
    }
    roots = {"FermionError", "TableError", "ConversionWarning"}
    assert named == errors - roots | {"FileNotFoundError"}

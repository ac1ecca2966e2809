"""The sources of the documentation site: every page is found, every link and name leads somewhere.

`make docs` builds the site, and is strict, too; these tests need nothing but the files.
"""

from __future__ import annotations

import importlib
import re

import pytest

from tests.documents import DOCS, PROJECT, anchors, links, pages_in, site_settings

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
    assert public - set(named) == set()
    for name in set(named) - public:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name

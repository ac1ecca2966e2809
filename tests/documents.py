"""The Markdown files of the project, taken apart: headings, links, the pages of the site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parent.parent
DOCS = PROJECT / "docs"

FENCED = re.compile(r"^ *(```+)[^\n]*\n.*?^ *\1 *$", re.M | re.S)
HEADING = re.compile(r"^#{1,6} (.+?)$", re.M)
LINK = re.compile(r"(?<!`)\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")


def prose(page: Path) -> str:
    """The text of a page without its code blocks."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as forges and the site derive them."""
    found: set[str] = set()
    for heading in HEADING.findall(prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip()).lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        same = sum(1 for other in found if re.fullmatch(rf"{re.escape(name)}(-\d+)?", other))
        found.add(f"{name}-{same}" if same else name)
    return found


def links(page: Path) -> list[tuple[str, str]]:
    """The links within the project: the file, empty for the page itself, and the anchor."""
    return LINK.findall(prose(page))


class _Loader(yaml.SafeLoader):
    """Loads settings of mkdocs; what names code of Python is left out."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def site_settings() -> dict[str, Any]:
    """What mkdocs.yml says."""
    return yaml.load((PROJECT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)


def pages_in(nav: Any) -> Iterator[str]:
    """The pages that a part of `nav` names, in its order."""
    if isinstance(nav, str):
        yield nav
        return
    for each in nav.values() if isinstance(nav, dict) else nav:
        yield from pages_in(each)

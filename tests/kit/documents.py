"""The Markdown files of the project, taken apart: headings, links, code, the site's pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

PROJECT = Path(__file__).resolve().parents[2]
DOCS = PROJECT / "docs"
README = PROJECT / "README.md"
BLOCK = re.compile(r"^```python(?P<mark>[^\n]*)\n(?P<code>.*?)^```$", re.M | re.S)
BLOCKS = BLOCK.findall(README.read_text())
# A comment names the modules that the blocks below it need, up to the next such comment. They run
# after the blocks of the page that need none.
STEP = re.compile(
    r"^<!-- requires:(?P<needs>[^>]*)-->$|^```(?P<language>python|shell)\n(?P<code>.*?)^```$",
    re.M | re.S,
)

FENCED = re.compile(r"^ *(```+)[^\n]*\n.*?^ *\1 *$", re.M | re.S)
BLOCK = re.compile(r"^```(?P<language>\w*)(?P<marks>[^\n]*)\n(?P<code>.*?)^```$", re.M | re.S)
NOT_FOR_USERS = {"API reference", "Specifications", "Performance and reliability", "Internals"}
NEEDS = "<!-- requires:"
"""Begins a comment on the modules that the blocks below it need: see tests/test_readme.py."""
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


class Block(NamedTuple):
    """A code block: its language, the words after it, its code, and the line that it begins on."""

    language: str
    marks: str
    code: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The code blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found["language"], found["marks"].strip(), found["code"], line)
        for found in BLOCK.finditer(text)
        for line in [text.count("\n", 0, found.start()) + 1]
    ]


def pages_for_users() -> list[Path]:
    """The pages whose code runs as one program, from top to bottom.

    Those of the site but the reference, formats and internals, and but `pages_with_needs`.
    """
    chosen = [part for part in site_settings()["nav"] if not {*part} & NOT_FOR_USERS]
    others = pages_with_needs()
    return [DOCS / name for name in pages_in(chosen) if DOCS / name not in others]


def pages_with_needs() -> list[Path]:
    """The pages on libraries that may not be installed, whose blocks are programs of their own."""
    return [page for page in sorted(DOCS.rglob("*.md")) if NEEDS in page.read_text("utf-8")]


NEED_A_SERVER = {
    "guide/s3.md": "tests/claims/fermion_table/test_page_about_s3.py",
    "guide/hdfs.md": "tests/hdfs/test_page.py",
    "guide/serve.md": "tests/fermion_table/cli/test_serve.py",
    "guide/flink.md": "tests/flink/test_guide.py",
    "guide/paimon.md": "tests/fermion_table/paimon/test_page.py",
}
"""Pages whose code runs in another module, which has the server or library that it needs."""


def uses_spark(page: Path) -> bool:
    """Whether a page needs a session of Spark."""
    is_sql_of_spark = page.relative_to(DOCS).as_posix() not in NEED_A_SERVER
    return any(
        (block.language == "sql" and is_sql_of_spark)
        or re.search(r"^\s*(?:import|from) pyspark\b", block.code, re.M)
        for block in blocks(page)
        if block.language in ("python", "sql")
    )


def name_of(page: Path) -> str:
    """A page as its test names it."""
    return page.relative_to(DOCS).with_suffix("").as_posix()


def programs(page: Path) -> dict[tuple[str, ...], str]:
    """The programs of a page on other libraries, by the modules that they need."""
    found: dict[tuple[str, ...], list[str]] = {}
    needs: tuple[str, ...] = ()
    for comment, language, code in STEP.findall(page.read_text()):
        if not language:
            needs = tuple(comment.replace(",", " ").split())
            continue
        run_in_shell = f"__import__('subprocess').run({code!r}, shell=True, check=True)"
        found.setdefault(needs, []).append(code if language == "python" else run_in_shell)
    first = found.get((), [])
    return {needs: "\n".join([*(first if needs else []), *steps]) for needs, steps in found.items()}

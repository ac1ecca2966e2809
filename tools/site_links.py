"""A hook of mkdocs: links that leave ``docs/`` work on a forge, and in the site.

In the Markdown files they lead to files of the project, such as ``../examples/quickstart.py``. The
site has no such files: their links become text there, or lead to ``repo_url`` if `mkdocs.yml` has
one. Pictures outside of ``docs/`` are copied into the site. The words after the language of a code
block (``hex file=first``), which tests read, are no options of the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

PROJECT = Path(__file__).resolve().parent.parent
PICTURES = PROJECT / "benchmarks" / "results"

FENCE = re.compile(r"^(?P<fence> *```)(?P<language>\w+) .*$", re.M)
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?:\.\./)[^)\s]*)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pictures of the benchmarks to the site."""
    for picture in sorted(PICTURES.glob("*.svg")):
        name = picture.relative_to(PROJECT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Change the links of a page that leave ``docs/``, and the first lines of its code blocks."""
    folder = posixpath.dirname(page.file.src_uri)

    def changed(link: re.Match[str]) -> str:
        place = posixpath.normpath(posixpath.join("docs", folder, link["target"]))
        if place.startswith("docs/"):
            return link[0]
        if link["picture"]:
            inside = posixpath.relpath(place, folder or ".")
            return f"![{link['text']}]({inside})"
        if config.repo_url:
            return f"[{link['text']}]({config.repo_url.rstrip('/')}/blob/main/{place})"
        return link["text"]

    return LINK.sub(changed, FENCE.sub(r"\g<fence>\g<language>", markdown))

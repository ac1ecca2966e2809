"""A web page of one file: data as JSON, and the scripts and the style that draw it.

The page asks nothing of a network, which its Content-Security-Policy says to the browser too:
scripts run by their hashes alone. Text of files and tables, which may be anyone's, is data: it is
in the JSON, where no character can end the element, and scripts write it with ``textContent`` or
onto a canvas.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fermion.display import CELL_LENGTH, printable, shortened
from fermion.exports import dataclass

_HERE = Path(__file__).parent
SCRIPTS = (_HERE / "page.js", _HERE / "axis.js")
"""Of every page."""
STYLE = _HERE / "page.css"
LAYOUT = (_HERE / "layout.js", _HERE / "layout_panels.js")
"""The scripts of the map of a file."""
# What could end a script element, or is no plain character to a tool that reads lines.
_ESCAPES = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}
_TEMPLATE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="fermion">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript>This page is drawn by a script, which the browser did not run.</noscript>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


@dataclass(frozen=True, slots=True, repr=False)
class WebPage:
    """A web page, complete in itself. Notebooks show it in a frame; `str` is its text.

    Attributes
    ----------
    title
        Any text.
    text
        HTML.
    """

    title: str
    text: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as a file, which a browser opens without a network."""
        Path(path).expanduser().write_bytes(self.text.encode("utf-8", "backslashreplace"))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        title = shortened(printable(self.title), CELL_LENGTH)
        return f"<WebPage {title!r} of {len(self.text):,} bytes: save(path) writes it>"

    def _repr_html_(self) -> str:
        # Its scripts run in a frame that can touch neither the notebook nor a network.
        return (
            f'<iframe sandbox="allow-scripts" title="{html.escape(printable(self.title))}" '
            f'style="width:100%;height:720px;border:0" srcdoc="{html.escape(self.text)}"></iframe>'
        )


def web_page(title: str, data: dict[str, Any], scripts: Sequence[Path]) -> str:
    """A page as text.

    Parameters
    ----------
    data
        What JSON can say, texts with any characters.
    scripts
        Files of what draws the page, in order.

    Returns
    -------
    str
        HTML of ASCII characters, but for the title.
    """
    parts = [each.read_text(encoding="utf-8") for each in (*SCRIPTS, *scripts)]
    code = "(() => {\n" + "\n".join(parts) + "})();\n"
    style = STYLE.read_text(encoding="utf-8")
    return _TEMPLATE.format(
        policy=html.escape(_policy(code, style)),
        title=html.escape(printable(title)),
        style=style,
        data=json_text(data),
        script=code,
    )


def json_text(data: Any) -> str:
    """JSON on one line of ASCII characters, which nothing in it can turn into HTML."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.translate(_ESCAPES)


def _policy(script: str, style: str) -> str:
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

"""The shell of web pages: complete in itself, and data stays data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from fermion.html.page import LAYOUT, json_text, web_page

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "\"'&amp;",
    "\u202eright to left\u2028\u2029\x00\x1b[2J",
    "\ud800",
    "日本",
]


class Elements(HTMLParser):
    """Elements with their attributes and text, as a browser would find them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        self.found.append((f"/{tag}", {}, []))

    def handle_data(self, data: str) -> None:
        if self.found:
            self.found[-1][2].append(data)

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(given, "".join(text)) for name, given, text in self.found if name == tag]


def test_data_stay_data_whatever_characters_they_have():
    """The page has the elements of the template and no others; what JSON says comes back."""
    page = web_page("<b>&\u202e", {"names": HOSTILE, "keys": dict.fromkeys(HOSTILE, 1)}, LAYOUT)
    elements = Elements(page)
    assert [attributes for attributes, _ in elements.of("script")] == [
        {"type": "application/json", "id": "data"},
        {},
    ]
    assert elements.of("img") == elements.of("b") == []
    assert elements.of("title")[0][1] == "<b>&\\u202e"
    found = json.loads(elements.of("script")[0][1])
    assert found == {"names": HOSTILE, "keys": dict.fromkeys(HOSTILE, 1)}
    assert page.isascii() or set(page) - set(map(chr, range(128))) <= set("×−·…")


def test_the_policy_of_a_page_allows_its_own_script_and_style_alone():
    """By their hashes; nothing is loaded from anywhere."""
    page = web_page("title", {}, LAYOUT)
    elements = Elements(page)
    (policy,) = (
        given["content"] or "" for given, _ in elements.of("meta") if "http-equiv" in given
    )
    for directive, text in (
        ("script-src", elements.of("script")[1][1]),
        ("style-src", elements.of("style")[0][1]),
    ):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'; ")
    assert re.findall(r"(?:src|href)=|https?://|@import|url\(|eval\(|innerHTML", page) == []


def test_numbers_that_json_has_not_are_refused():
    """A script could not read them."""
    with pytest.raises(ValueError, match="Out of range float"):
        json_text({"ratio": float("nan")})

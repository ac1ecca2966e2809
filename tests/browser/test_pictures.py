"""The pictures of the documentation can be taken again, and are small."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import pictures
from tools.chromium.browser import Browser

pytestmark = pytest.mark.services


@pytest.mark.usefixtures("browser")  # skips where there is none
def test_pictures_are_taken_and_those_of_the_documentation_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same ones, each named in a page; `take` refuses errors of pages and large files."""
    monkeypatch.chdir(tmp_path)
    taken = pictures.take(tmp_path)
    assert [each.read_bytes()[:4] for each in taken] == [b"\x89PNG"] * 2
    documents = "\n".join(page.read_text() for page in pictures.PROJECT.glob("docs/**/*.md"))
    for each in taken:
        assert (pictures.IMAGES / each.name).stat().st_size <= pictures.BYTES_MAX
        assert f"images/{each.name})" in documents


def test_a_page_that_fails_says_so(browser: Browser, tmp_path: Path) -> None:
    """An exception of a script, and what the policy of a page forbids."""
    broken = tmp_path / "broken.html"
    broken.write_text(
        "<!DOCTYPE html><meta http-equiv='Content-Security-Policy' content=\"img-src 'none'\">"
        "<img src='other.png'><script>throw new Error('broken here')</script>"
    )
    page = browser.open(broken)
    said = "\n".join(page.errors())
    assert "broken here" in said
    assert "Content Security Policy" in said
    page.close()

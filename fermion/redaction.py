"""URLs as messages and reprs show them: without credentials."""

from __future__ import annotations

import re

# In an address of Azure what comes before the @ is the container.
_USER_INFO = re.compile(r"((?:^|::)(?!abfss?:|wasbs?:)[A-Za-z][A-Za-z0-9+.-]*://)[^/?#]*@")
_QUERY = re.compile(r"\?[^#]*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>)]+?(?=[:.,;]*(?:[\s'\"<>)]|$))")


def redacted(url: str) -> str:
    """A URL for messages: without user info, and without its query, which may hold signatures."""
    if "://" not in url:
        return url
    return _QUERY.sub("?...", _USER_INFO.sub(r"\1", url))


def redacted_text(text: str) -> str:
    """A message with every URL in it redacted."""
    return _URL.sub(lambda found: redacted(found[0]), text) if "://" in text else text

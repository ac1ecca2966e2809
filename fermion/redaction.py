"""URLs as messages, logs and reprs show them: without credentials."""

from __future__ import annotations

import logging
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


def logger(name: str) -> logging.Logger:
    """The logger of a module, with every URL in its messages redacted."""
    found = logging.getLogger(name)
    if _redact_record not in found.filters:
        found.addFilter(_redact_record)
    return found


def _redact_record(record: logging.LogRecord) -> bool:
    """Put the redacted message in the place of format and arguments; every record passes."""
    record.msg, record.args = redacted_text(record.getMessage()), None
    return True

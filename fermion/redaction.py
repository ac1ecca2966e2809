"""URLs as messages, logs and reprs show them: without credentials."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging

_BUCKETS = {"s3", "s3a", "gs", "gcs", "oss"}
"""Schemes whose addresses begin with a bucket, whose name has no colon."""
_USERS = {"hdfs", "webhdfs", "ftp", "sftp", "ssh", "smb"}
"""Schemes whose addresses may name a user before an @."""
_HOSTS = {"http", "https", *_USERS}
_CONTAINERS = {"abfs", "abfss", "az", "wasb", "wasbs"}
"""Schemes whose addresses may name a container before an @."""
_CAUSES_MAX = 16
_PATHS = {"zip", "tar", "libarchive", "github", "git", "gitlab"}
"""Schemes where colon and @ mean something else: a path, or a repository and its revision."""

_LINKS = r"::(?=[A-Za-z][A-Za-z0-9+.-]*://)"
_AT = r"@|%40"
_COLON = r"(?i::|%3a)"
_HOST = r"(?:\[[^\]]*\]|[^:%]*)(?::[0-9]*)?"
_CUT = rf"({'|'.join(sorted(_BUCKETS | _HOSTS | _CONTAINERS))}):/?(?!/)"
"""A scheme that has lost its slashes, as ``pathlib.Path`` makes it lose one."""
_QUERY = r"\?[^#]+"
_URL = r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>)]+?(?=[:.,;]*(?:[\s'\"<>)]|$))"
_PAIR_IN_TEXT = r"[^\s'\"<>/:@,;()=]+:[^\s'\"<>@,;()]+@(?=[\w.-])"
_PARAMETER = (
    r"(?i)([?&][\w.-]*(?:delegation|sig|token|password|secret|credential)[\w.-]*=)[^&\s'\"<>)]+"
)


def _user_info(link: str) -> tuple[int, int, bool]:
    """Where what stands before the @ of an address begins and ends, and whether it may be secret.

    A password may hold a slash: so does what follows a colon that no port follows.
    """
    head, separator, rest = link.partition("://")
    scheme, start = head.rpartition("::")[2].strip().lower(), len(head) + len(separator)
    if not separator:
        cut = re.match(_CUT, link)
        if cut is None or not re.search(_AT, link):
            return 0, 0, False
        scheme, start, rest = cut[1], cut.end(), link[cut.end() :]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if scheme in _PATHS or authority.startswith("arn:"):  # an access point of S3 has colons
        return start, start, False
    ends = [found.end() for found in re.finditer(_AT, authority)]
    colon = re.search(_COLON, authority)
    if not ends and colon and (scheme in _BUCKETS or not re.fullmatch(_HOST, authority)):
        ends = [found.end() for found in re.finditer(_AT, rest)]
        if not ends and scheme in _BUCKETS | _HOSTS:
            ends = [len(authority)]
    if not ends:
        return start, start, False
    has_password = colon is not None and colon.start() < ends[-1]
    return start, start + ends[-1], has_password or scheme not in _USERS | _CONTAINERS


def has_credentials(url: str) -> bool:
    """Whether a URL, or a link of a chain of them, holds credentials before an @.

    The name of a user alone is none where clients take it (``hdfs://user@host/a``), nor is that of
    a container of Azure.
    """
    return any(is_secret for *_, is_secret in map(_user_info, re.split(_LINKS, url)))


def redacted(url: str) -> str:
    """A URL for messages: without user info, and without its query, which may hold signatures."""
    if "://" not in url and "@" not in url:
        return url
    links = "::".join(_without_user_info(re.split(_LINKS, url)))
    return re.sub(_QUERY, "?...", links) if "://" in url else links


def _without_user_info(links: list[str]) -> Iterator[str]:
    for link in links:
        start, stop, is_secret = _user_info(link)
        is_container = link.partition("://")[0].lower() in _CONTAINERS
        yield link if is_container and not is_secret else link[:start] + link[stop:]


def redacted_text(text: str) -> str:
    """A message with every URL in it redacted."""
    return re.sub(_URL, lambda found: redacted(found[0]), text) if "://" in text else text


def redacted_reply(text: str) -> str:
    """What a client of a storage says, without credentials, be they in a URL or not."""
    return re.sub(_PARAMETER, r"\1...", re.sub(_PAIR_IN_TEXT, "", redacted_text(text)))


def as_cause(error: BaseException) -> BaseException | None:
    """An error as the cause of another; None where its traceback would show credentials."""
    import traceback

    shown: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if shown is None:
            return error
        text = "".join(traceback.format_exception_only(shown))
        if redacted_reply(text) != text:
            return None
        hidden = None if shown.__suppress_context__ else shown.__context__
        shown = shown.__cause__ or hidden
    return None


def logger(name: str) -> logging.Logger:
    """The logger of a module, with every URL in its messages redacted."""
    return _Logger(name)  # type: ignore[return-value]


class _Logger:
    """Stands for a logger: `logging` takes 4 ms to import, and a read has nothing to say."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return logger, (self._name,)

    def __getattr__(self, method: str) -> Any:
        import logging

        found = logging.getLogger(self._name)
        if _redact_record not in found.filters:
            found.addFilter(_redact_record)
        return getattr(found, method)


def _redact_record(record: logging.LogRecord) -> bool:
    """Put the redacted message in the place of format and arguments; every record passes."""
    record.msg, record.args = redacted_reply(record.getMessage()), None
    return True

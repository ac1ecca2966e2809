"""Storages reached through fsspec: what their errors mean, and their addresses in messages."""

from __future__ import annotations

import errno
import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from fermion.errors import InvalidArgumentError, StorageDenied, StorageError, StorageTimeout
from fermion.redaction import redacted as redacted
from fermion.redaction import redacted_text

if TYPE_CHECKING:
    import fsspec

TIMEOUT_S = 60.0
"""Seconds after which a request to a storage is given up, with all that was tried again for it."""
ATTEMPTS = 4
"""How often a request is sent at most: by botocore to S3, by `ask` where nobody else does."""
BACKOFF_S_MIN = 0.1
_S3 = {"s3", "s3a"}
_NOT_REPEATED = {"http", "https", "webhdfs"}
"""Protocols whose clients try nothing again."""
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}
"""Statuses of HTTP after which another try may succeed."""
_BROKEN = {"ConnectionError", "ClientConnectionError", "ClientPayloadError"}
"""Errors, by name, of requests and aiohttp whose connection broke."""
UNAUTHORIZED, FORBIDDEN, RANGE_NOT_SATISFIABLE = 401, 403, 416
"""Statuses of HTTP (RFC 9110)."""
_MISSING_BUCKET = {"NoSuchBucket", "ContainerNotFound", "NoSuchContainer", "FilesystemNotFound"}
_DENIED = {"", "403", "AccessDenied", "Forbidden", "AuthorizationPermissionMismatch"}


def connect(
    url: str, storage_options: dict[str, Any] | None = None
) -> tuple[fsspec.AbstractFileSystem, str]:
    """The file system of a URL, and the path on it.

    Of the clients that try requests again, one inside the other, one is left: for S3 botocore,
    which tries `ATTEMPTS` times, unless the options say how often; s3fs, around it, tries once.
    """
    import fsspec  # brings asyncio along, which local files do not need

    options = dict(storage_options or {})
    is_s3 = url.rpartition("::")[2].partition("://")[0] in _S3
    if is_s3 and "::" not in url:
        further = dict(options.get("config_kwargs") or {})
        further.setdefault("retries", {"mode": "standard", "total_max_attempts": ATTEMPTS})
        options["config_kwargs"] = further
    filesystem, path = fsspec.core.url_to_fs(url, **options)
    if is_s3 and "::" not in url:
        filesystem.retries = 1
    session: Any = getattr(filesystem, "session", None)
    if "webhdfs" in _protocols(filesystem) and not isinstance(session.request, functools.partial):
        session.request = functools.partial(session.request, timeout=TIMEOUT_S)
    return filesystem, path


def check_timeout(timeout_s: Any) -> None:
    """Refuse a time that is no positive number of seconds.

    Raises
    ------
    TypeError, InvalidArgumentError
    """
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)):
        raise TypeError(f"timeout_s={timeout_s!r}: expected a number of seconds")
    if not 0 < timeout_s < float("inf"):
        raise InvalidArgumentError(f"timeout_s={timeout_s!r}: expected more than 0 seconds")


def ask(
    filesystem: fsspec.AbstractFileSystem,
    method: str,
    *arguments: Any,
    timeout_s: float = TIMEOUT_S,
    repeats: bool = True,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    **keywords: Any,
) -> Any:
    """Call a method of a file system, and give up after a time.

    Parameters
    ----------
    method
        Its name.
    timeout_s
        Seconds for the call with all that is tried again for it: here, where the client of the
        storage tries nothing again, or in that client. File systems that are not asynchronous
        have time-outs of their own.
    repeats
        Whether the call may be made again after an error that may pass: it reads.

    Raises
    ------
    TimeoutError
        No answer in time.
    """
    ends = clock() + timeout_s
    is_async = getattr(filesystem, "async_impl", False) and not hasattr(filesystem, "fs")
    again = repeats and not _NOT_REPEATED.isdisjoint(_protocols(filesystem))
    for tried in range(1, ATTEMPTS + 1):
        bound = {"timeout": max(ends - clock(), 0.001)} if is_async else {}
        try:
            return getattr(filesystem, method)(*arguments, **keywords, **bound)
        except Exception as error:
            pause = BACKOFF_S_MIN * 2**tried
            if not again or tried == ATTEMPTS or not _may_pass(error) or clock() + pause >= ends:
                raise
            sleep(pause)
    raise AssertionError


def _may_pass(error: BaseException) -> bool:
    """Whether another try may succeed: the server is busy, or the connection broke."""
    if isinstance(error, TimeoutError):
        return False
    status = http_status(error)
    if status is not None:
        return status in _TRANSIENT
    return any(kind.__name__ in _BROKEN for kind in type(error).__mro__)


def _protocols(filesystem: fsspec.AbstractFileSystem) -> tuple[str, ...]:
    found = filesystem.protocol
    return (found,) if isinstance(found, str) else tuple(found)


def storage_error(operation: str, url: str, error: BaseException) -> StorageError:
    """The error to raise from one of a storage; its message names operation and address.

    Parameters
    ----------
    operation
        What was asked for, a verb: ``"read"``.
    url
        Of the object; it is redacted here.
    error
        The storage's own.
    """
    where = redacted(url)
    status = http_status(error)
    if is_missing_bucket(error):
        text = f"{operation} {where}: the bucket does not exist"
        return StorageError(errno.ENODEV, text, operation=operation, url=where)
    said = redacted_text(str(error).strip()) or type(error).__name__
    text = f"{operation} {where}: {said}" + (f" (HTTP {status})" if status is not None else "")
    code = getattr(error, "errno", None)
    if isinstance(error, PermissionError) or status in (UNAUTHORIZED, FORBIDDEN):
        return StorageDenied(code or errno.EACCES, text, operation=operation, url=where)
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return StorageTimeout(errno.ETIMEDOUT, text, operation=operation, url=where)
    return StorageError(code or errno.EIO, text, operation=operation, url=where)


def http_status(error: BaseException) -> int | None:
    """The status of the HTTP reply that led to an error, None where nothing says it."""
    for each in _causes(error):
        reply = getattr(each, "response", None)
        found: Any = None
        if isinstance(reply, dict):  # botocore
            found = (reply.get("ResponseMetadata") or {}).get("HTTPStatusCode")
        elif reply is not None:  # requests
            found = getattr(reply, "status_code", None)
        for name in ("status", "status_code", "code"):  # aiohttp, Azure, gcsfs
            found = found if isinstance(found, int) else getattr(each, name, None)
        if isinstance(found, int) and 300 <= found < 600:
            return found
    return None


def is_missing_bucket(error: BaseException) -> bool:
    """Whether the bucket or container is not there, rather than an object of it."""
    return any(_code(each) in _MISSING_BUCKET for each in _causes(error))


def is_missing(error: BaseException) -> bool:
    """Whether an error says that there is no such object."""
    return isinstance(error, FileNotFoundError) and not is_missing_bucket(error)


def is_refused_range(error: BaseException) -> bool:
    """Whether a range begins past the end of an object."""
    return http_status(error) == RANGE_NOT_SATISFIABLE


def is_denied_object(error: BaseException) -> bool:
    """Whether access to an object was denied: what S3 answers without the right to list, too.

    Other refusals (an expired token, a wrong signature) say nothing of the object.
    """
    if http_status(error) != FORBIDDEN:
        return False
    return all(_code(each) in _DENIED for each in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from."""
    found: BaseException | None = error
    for _ in range(8):
        if found is None:
            return
        yield found
        found = found.__cause__


def _code(error: BaseException) -> str:
    """The code that a storage has for an error, empty where it has none."""
    reply = getattr(error, "response", None)
    if isinstance(reply, dict):
        return str((reply.get("Error") or {}).get("Code") or "")
    found = getattr(error, "error_code", "")  # Azure
    return str(getattr(found, "value", found) or "")

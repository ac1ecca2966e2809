"""Storages reached through fsspec: what their errors mean, and their addresses in messages."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fermion import telemetry
from fermion.arguments import mapping
from fermion.deadline import TIMEOUT_S, NoTimeLeft, deadline, now, time_left
from fermion.errors import InvalidArgumentError, StorageDenied, StorageError, StorageTimeout
from fermion.redaction import as_cause, has_credentials, redacted, redacted_reply

if TYPE_CHECKING:
    import fsspec

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
_PARSING = "aiohttp.http_exceptions"
"""The module of errors of replies that can't be parsed: they have a code that no server sent."""
_CUT = {"ClientPayloadError", "IncompleteReadError", "ResponseStreamingError"}
"""Errors, by name, of aiohttp and botocore of a body that ended too early."""
UNAUTHORIZED, FORBIDDEN, RANGE_NOT_SATISFIABLE = 401, 403, 416
"""Statuses of HTTP (RFC 9110)."""
_MISSING_BUCKET = {"NoSuchBucket", "ContainerNotFound", "NoSuchContainer", "FilesystemNotFound"}
_QUOTA = {"QuotaExceeded"}
"""Codes of a bucket or user that may hold no more: Ceph answers them as 403, too."""
_DENIED = {"", "403", "AccessDenied", "Forbidden", "AuthorizationPermissionMismatch"}


def connect(
    url: str, storage_options: dict[str, Any] | None = None
) -> tuple[fsspec.AbstractFileSystem, str]:
    """The file system of a URL, and the path on it.

    Of the clients that try requests again, one inside the other, one is left: for S3 botocore,
    which tries `ATTEMPTS` times, unless the options say how often; s3fs, around it, tries once.

    Raises
    ------
    InvalidArgumentError
        The URL holds credentials.
    """
    import fsspec  # brings asyncio along, which local files do not need

    refuse_credentials(url)
    options = dict(storage_options or {})
    if url.startswith("hdfs://") and "::" not in url:
        native = _native_hdfs()
        if native is not None:
            place = {**native._get_kwargs_from_urls(url), **options}
            return native(**place), native._strip_protocol(url)
    is_s3 = url.rpartition("::")[2].partition("://")[0] in _S3
    if is_s3 and "::" not in url:
        further = dict(options.get("config_kwargs") or {})
        further.setdefault("retries", {"mode": "standard", "total_max_attempts": ATTEMPTS})
        options["config_kwargs"] = further
    try:
        filesystem, path = fsspec.core.url_to_fs(url, **options)
    except (ImportError, OSError) as error:
        if not url.startswith("hdfs://"):
            raise
        said = (
            f"{str(error).partition(chr(10))[0]} (Java's client, as hdfs-native is not installed)"
        )
        hint = "pip install hdfs-native (the extra hdfs of fermion)"
        told = storage_error("connect to", url, OSError(f"{said}; {hint} needs no Java"))
        raise told from as_cause(error)
    if is_s3 and "::" not in url:
        filesystem.retries = 1
    session: Any = getattr(filesystem, "session", None)
    if "webhdfs" in protocols(filesystem) and not isinstance(session.request, _RequestInTime):
        session.request = _RequestInTime(session.request)
    return filesystem, path


def refuse_credentials(location: str, what: str = "") -> None:
    """Refuse a location with credentials before any client, which would show them, sees it.

    Parameters
    ----------
    what
        The parameter that it is of, for the message.

    Raises
    ------
    InvalidArgumentError
        Without the credentials.
    """
    if has_credentials(location):
        shown = f"{what}={redacted(location)!r}" if what else redacted(location)
        raise InvalidArgumentError(
            f"{shown}: expected a location without credentials, found some before an @, which are "
            "not shown here: pass them in storage_options, or in the environment"
        )


def _native_hdfs() -> Any:
    """The file system of HDFS without Java; None where it is not installed."""
    try:
        from fermion.io.hdfs import Hdfs
    except ModuleNotFoundError as error:
        if error.name != "hdfs_native":
            raise
        return None
    return Hdfs


def renames_in_one_step(filesystem: fsspec.AbstractFileSystem) -> bool:
    """Whether a file system writes a file and gives it its name as `fermion.io.hdfs` does."""
    return hasattr(filesystem, "create_file")


def resolve(
    path: str | os.PathLike[str], storage_options: dict[str, Any] | None = None
) -> tuple[fsspec.AbstractFileSystem | None, str]:
    """Take a path or URL apart into a file system (None: local) and a path on it."""
    mapping(storage_options, "storage_options")
    text = os.fspath(path)
    refuse_credentials(text)
    if isinstance(path, Path) or ("://" not in text and "::" not in text):
        return None, os.path.expanduser(text)
    # Only URLs need fsspec, which brings asyncio along: a fifth of what the first read would load.
    from fsspec.implementations.local import LocalFileSystem

    filesystem, inner = connect(text, storage_options)
    if isinstance(filesystem, LocalFileSystem):
        return None, inner
    return filesystem, inner


class _RequestInTime:
    """The `request` of a session of requests, which has no time-out of its own.

    It takes what is left until the deadline of the call that it is sent for. A call may send
    several: what was done when one is not sent any more is for its caller to say.
    """

    def __init__(self, request: Callable[..., Any]) -> None:
        self._request = request

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        left = time_left(TIMEOUT_S)
        if left <= 0:
            raise TimeoutError("no reply in time")
        return self._request(*arguments, **{"timeout": left, **keywords})


def ask(
    filesystem: fsspec.AbstractFileSystem,
    method: str,
    *arguments: Any,
    timeout_s: float = TIMEOUT_S,
    repeats: bool = True,
    clock: Callable[[], float] = now,
    sleep: Callable[[float], None] = time.sleep,
    **keywords: Any,
) -> Any:
    """Call a method of a file system, and give up after a time.

    Parameters
    ----------
    timeout_s
        Seconds for the call with all that is tried again for it: here, where the client of the
        storage tries nothing again, or in that client. Where a `deadline` ends earlier, so does
        the call. Of the file systems that are not asynchronous only WebHDFS keeps to it; a call of
        any other lasts as long as its client likes.
    repeats
        Whether the call may be made again after an error that may pass: it reads.

    Raises
    ------
    NoTimeLeft
        The deadline was over before: nothing was sent.
    TimeoutError
        No answer in time.
    """
    is_async = getattr(filesystem, "async_impl", False) and not hasattr(filesystem, "fs")
    alone = not _NOT_REPEATED.isdisjoint(protocols(filesystem))
    with deadline(timeout_s, clock) as ends:
        if ends <= clock():
            raise NoTimeLeft
        for tried in range(1, ATTEMPTS + 1):
            bound = {"timeout": max(ends - clock(), 0.001)} if is_async else {}
            if telemetry.watching is not None:
                telemetry.watching.count("fermion.storage.requests", 1, operation=method)
            try:
                return getattr(filesystem, method)(*arguments, **keywords, **bound)
            except Exception as error:
                pause = BACKOFF_S_MIN * 2**tried
                again = repeats and (_may_pass(error) if alone else _is_cut(error))
                if not again or tried == ATTEMPTS:
                    raise
                if clock() + pause >= ends:
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


def _is_cut(error: BaseException) -> bool:
    """Whether the connection broke within the body of a reply, after which no client asks again."""
    return any(kind.__name__ in _CUT for each in _causes(error) for kind in type(each).__mro__)


def protocols(filesystem: fsspec.AbstractFileSystem) -> tuple[str, ...]:
    """The names that URLs of a file system begin with."""
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
    """
    where = redacted(url)
    status = http_status(error)
    if is_missing_bucket(error):
        text = f"{operation} {where}: the bucket does not exist"
        return StorageError(errno.ENODEV, text, operation=operation, url=where)
    said = _said(error)
    text = f"{operation} {where}: {said}" + (f" (HTTP {status})" if status is not None else "")
    code = getattr(error, "errno", None)
    if any(_code(each) in _QUOTA for each in _causes(error)):
        return StorageError(errno.EDQUOT, text, operation=operation, url=where)
    if isinstance(error, PermissionError) or status in (UNAUTHORIZED, FORBIDDEN):
        return StorageDenied(code or errno.EACCES, text, operation=operation, url=where)
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return StorageTimeout(errno.ETIMEDOUT, text, operation=operation, url=where)
    return StorageError(code or errno.EIO, text, operation=operation, url=where)


def _said(error: BaseException) -> str:
    """What a client says of an error, with the storage's code for it where it says none."""
    text = redacted_reply(str(error).strip())
    code = next((found for each in _causes(error) if (found := _code(each))), "")
    if code.isalpha() and code not in text:
        return f"{code}: {text}" if text and text != "None" else code
    return text or type(error).__name__


def http_status(error: BaseException) -> int | None:
    """The status of the HTTP reply that led to an error, None where nothing says it."""
    for each in _causes(error):
        if type(each).__module__ == _PARSING:
            continue
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
        hidden = found.__context__ if found.__suppress_context__ else None  # see `as_cause`
        found = found.__cause__ or hidden


def _code(error: BaseException) -> str:
    """The code that a storage has for an error, empty where it has none."""
    reply = getattr(error, "response", None)
    if isinstance(reply, dict):
        return str((reply.get("Error") or {}).get("Code") or "")
    found = getattr(error, "error_code", "")  # Azure
    return str(getattr(found, "value", found) or "")

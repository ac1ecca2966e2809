"""Storages reached through fsspec: what their errors mean, and their addresses in messages."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

from fermion.errors import StorageDenied, StorageError, StorageTimeout
from fermion.redaction import redacted as redacted
from fermion.redaction import redacted_text

UNAUTHORIZED, FORBIDDEN, RANGE_NOT_SATISFIABLE = 401, 403, 416
"""Statuses of HTTP (RFC 9110)."""
_MISSING_BUCKET = {"NoSuchBucket", "ContainerNotFound", "NoSuchContainer", "FilesystemNotFound"}
_DENIED = {"", "403", "AccessDenied", "Forbidden", "AuthorizationPermissionMismatch"}


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

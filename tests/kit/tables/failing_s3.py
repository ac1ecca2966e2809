"""S3 requests that fail as real servers let them fail, in front of moto."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

Matches = Callable[[str, str], bool]
"""Whether a request fails: its method (``get_object``) and its key."""


@contextmanager
def failing(filesystem: Any, matches: Matches, *, code: str, status: int) -> Iterator[list[str]]:
    """Answer matching requests with an error of S3; which were, by key."""
    from botocore.exceptions import ClientError
    from s3fs.errors import translate_boto_error

    real, refused = filesystem._call_s3, []

    async def call(method: str, *arguments: Any, **keywords: Any) -> Any:
        key = str(keywords.get("Key", keywords.get("Prefix", "")))
        if matches(method, key):
            refused.append(key)
            reply = {
                "Error": {"Code": code, "Message": f"injected {code}"},
                "ResponseMetadata": {"HTTPStatusCode": status},
            }
            raise translate_boto_error(ClientError(reply, method))
        return await real(method, *arguments, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filesystem, "_call_s3", call)
        yield refused

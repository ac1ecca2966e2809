"""A remote file that is not there: FileNotFoundError, without the secrets of its URL."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from fermion.io.source import FilesystemSource

SECRET = "X-Amz-Signature=0123abcd"


class SignedFileSystem(MemoryFileSystem):
    """Says the whole URL of what is not there, as fsspec's HTTP file system does."""

    def info(self, path: str, **options: Any) -> Any:
        """Nothing is there."""
        raise FileNotFoundError(f"https://user:password@host/{path}?{SECRET}")


def test_a_missing_file_is_named_without_the_secrets_of_its_url():
    """In the message, and in the traceback with all causes."""
    with pytest.raises(FileNotFoundError, match=r"a\.fermion") as caught:
        FilesystemSource(SignedFileSystem(), "/a.fermion").read_end(8)
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    assert "password" not in str(caught.value)

"""Tokens: in files that only their owner reads, and in the headers of calls."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.flight
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table.serving.access import TokenCheck, is_loopback, new_token, token_in


def test_a_token_file_is_made_for_its_owner_alone_and_then_kept(tmp_path: Path) -> None:
    path = tmp_path / "token"
    before = os.umask(0)
    try:
        token, is_new = token_in(str(path))
    finally:
        os.umask(before)
    assert is_new
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(token) >= 43
    assert token_in(str(path)) == (token, False)
    assert new_token() != new_token()


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        (b"secret", 0o644, "only its owner may read, found mode 644"),
        (b"secret", 0o620, "found mode 620"),
        (b"", 0o600, "expected a token"),
        (b" \n", 0o600, "expected a token"),
        (b"two words", 0o600, "expected a token"),
        (b"a\nb\n", 0o600, "expected a token"),
        (b"\xff", 0o600, "expected a token"),
        (b"x" * 5000, 0o600, "expected a token"),
    ],
)
def test_files_without_a_token_or_for_others_are_refused(
    tmp_path: Path, content: bytes, mode: int, message: str
) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(InvalidArgumentError, match=message):
        token_in(str(path))
    assert path.read_bytes() == content


def test_a_token_file_in_no_directory_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        token_in(str(tmp_path / "none" / "token"))
    with pytest.raises(OSError, match="directory"):
        token_in(str(tmp_path))


@pytest.mark.parametrize(
    "value",
    ["", "Bearer", "Bearer ", "Basic", "Basic ???", "Basic c2VjcmV0", "secret", "Bearer ü", "ü"],
)
def test_a_header_without_the_token_is_refused(value: str) -> None:
    check = TokenCheck("secret")
    with pytest.raises(pyarrow.flight.FlightUnauthenticatedError):
        check.start_call(None, {"authorization": [value]})
    with pytest.raises(pyarrow.flight.FlightUnauthenticatedError):
        check.start_call(None, {"x": ["Bearer secret"]})


def test_loopback_is_what_only_this_machine_reaches() -> None:
    for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1"):
        assert is_loopback(host)
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", "", "localhost.example.org"):
        assert not is_loopback(host)

"""Who may ask: a token that clients send, the file that it lies in, and the certificate of TLS."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import os
import secrets
from pathlib import Path
from typing import Any

import pyarrow.flight as flight

from fermion.errors import InvalidArgumentError

_TOKEN_BYTES_MAX = 4096
_REFUSED = (
    "expected the server's token, as a bearer token or as the password of any user; "
    "the server's operator knows it"
)


class TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc, unused-ignore]
    """Refuses calls without the token; each of its own, before anything is read.

    token: What clients send: ``authorization: Bearer TOKEN``, or ``Basic`` with it as the password.
    """

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token.encode()

    def start_call(self, info: Any, headers: dict[str, list[Any]]) -> Any:
        """Called by Flight before each call."""
        given = next((values[0] for key, values in headers.items() if key.lower() == _HEADER), "")
        scheme, _, value = (given.decode() if isinstance(given, bytes) else given).partition(" ")
        is_basic = scheme.lower() == "basic"
        token = _password(value) if is_basic else value.strip().encode()
        if scheme.lower() not in ("basic", "bearer") or not hmac.compare_digest(token, self._token):
            raise flight.FlightUnauthenticatedError(_REFUSED)
        return _TokenReply(self._token) if is_basic else None


class _TokenReply(flight.ServerMiddleware):  # type: ignore[misc, unused-ignore]
    """Tells a client that has sent a password which token to send from now on."""

    def __init__(self, token: bytes) -> None:
        super().__init__()
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        """Called by Flight when it answers."""
        return {_HEADER: f"Bearer {self._token.decode()}"}


class AnyHandshake(flight.ServerAuthHandler):  # type: ignore[misc, unused-ignore]
    """Lets the handshake of clients with a password pass: `TokenCheck` has seen its headers."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Nothing is asked here."""

    def is_valid(self, token: bytes) -> bytes:
        """Every caller has no name."""
        return b""


_HEADER = "authorization"


def _password(value: str) -> bytes:
    try:
        return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""


def new_token() -> str:
    """A random token, for a header."""
    return secrets.token_urlsafe(32)


def token_in(path: str) -> tuple[str, bool]:
    """The token in a file, and whether the file was made: with a new one, for its owner alone.

    Raises InvalidArgumentError: The file holds no token of one line; or others than its owner may
        read or write it.
    Raises OSError.
    """
    token = new_token()
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _token_of(Path(path)), False
    with os.fdopen(file, "w") as opened:
        opened.write(f"{token}\n")
    return token, True


def _token_of(path: Path) -> str:
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise InvalidArgumentError(
            f"{path}: expected a file that only its owner may read, found mode {mode:o}: chmod 600"
        )
    with path.open("rb") as file:
        data = file.read(_TOKEN_BYTES_MAX + 1)
    token = data.decode("ascii", "replace").strip()
    if not token or len(data) > _TOKEN_BYTES_MAX or not token.isascii() or len(token.split()) != 1:
        raise InvalidArgumentError(f"{path}: expected a token: one line of ASCII without spaces")
    return token


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

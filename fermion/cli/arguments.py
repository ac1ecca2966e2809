"""The argument ``--storage-option``, which every command that reads or writes has."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_storage_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--storage-option``."""
    parser.add_argument(
        "--storage-option",
        action="append",
        default=[],
        type=_option,
        metavar="KEY=TEXT",
        dest="storage_option",
        help="option of the storage's fsspec client, such as key=TEXT; KEY:=JSON for what is no "
        "text, such as anon:=true; may be repeated",
    )


def storage_options(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """The options given; None for none."""
    return dict(arguments.storage_option) or None


def _option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.removesuffix(":"):
        raise argparse.ArgumentTypeError("expected KEY=TEXT or KEY:=JSON")
    if not key.endswith(":"):
        return key, value
    try:
        return key[:-1], json.loads(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{key}=: expected JSON: {error}") from None

"""What the command ``fermion`` prints, in the process of the tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fermion.cli import main


def output(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    """What a command prints; it has to end with this status and complain of nothing."""
    assert main([str(each) for each in arguments]) == status
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def printed_json(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> Any:
    return json.loads(output(capsys, *arguments, "--json", status=status))


def complaint(capsys: pytest.CaptureFixture[str], *arguments: object, status: int) -> str:
    """The one line on standard error with which a command fails."""
    assert main([str(each) for each in arguments]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("fermion")
    return line

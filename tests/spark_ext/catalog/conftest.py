"""What tests of planning count."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection
from py4j.protocol import MEMORY_COMMAND_NAME


@pytest.fixture
def jvm_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that the JVM gets from now on, but for releases of objects: these come whenever
    Python collects the garbage of earlier queries."""
    calls: list[str] = []
    send = ClientServerConnection.send_command

    def noted(self: ClientServerConnection, command: str, *rest: Any) -> Any:
        if not command.startswith(MEMORY_COMMAND_NAME):
            calls.append(command)
        return send(self, command, *rest)

    monkeypatch.setattr(ClientServerConnection, "send_command", noted)
    return calls

"""Runs ``python -m ...`` for workers that die, once at each place that a file in a folder names.

    python dying.py FOLDER -m flink_ext.daemon flink_ext.worker

Places: ``in-write``, ``after-prepare``, ``before-commit``, ``after-commit``, ``in-read``.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

from flink_ext.worker import reading, writing

FOLDER = Path(sys.argv[1])


def die(place: str) -> None:
    """End this process here if the file is there, which is used up."""
    try:
        (FOLDER / place).unlink()
    except FileNotFoundError:
        return
    print(f"dying {place}", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def dying(kind: type, method: str, before: str | None, after: str | None) -> None:
    """Replace a method by one that dies before or after it."""
    original = getattr(kind, method)

    def replaced(self: Any, *arguments: Any) -> Any:
        if before is not None:
            die(before)
        result = original(self, *arguments)
        if after is not None:
            die(after)
        return result

    setattr(kind, method, replaced)


if __name__ == "__main__":
    dying(writing.Sink, "write", None, "in-write")
    dying(writing.Sink, "prepare", None, "after-prepare")
    dying(writing.Commit, "answer", "before-commit", "after-commit")
    dying(reading.Read, "answer", "in-read", None)
    module, *sys.argv[1:] = sys.argv[3:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)

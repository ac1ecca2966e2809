"""Python processes in which Spark runs tasks and plans: what they keep from one to the next."""

from __future__ import annotations

import gc
import os
import sys

_RUNTIME, _WORKER = "SPARK_PYTHON_RUNTIME", "PYTHON_WORKER"
_kept = 0


def keep_modules() -> None:
    """Let the garbage collector skip what this process has imported. Only in workers of Spark.

    A worker collects garbage after every task. To look at all objects of the modules that Spark and
    we import takes longer than to read a small table, and none of them is ever garbage.
    """
    global _kept
    if os.environ.get(_RUNTIME) == _WORKER and len(sys.modules) > _kept:
        _kept = len(sys.modules)
        gc.freeze()  # right after a collection: there is no garbage that would stay

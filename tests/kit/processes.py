"""Code that runs in other processes: forked ones, with a time limit, and spawned ones."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import select
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

FORK_SECONDS_MAX = 60


def in_fork(function: Callable[[], Any], *, seconds: float = FORK_SECONDS_MAX) -> Any:
    """What a function returns in a forked child; its error is raised here.

    Raises
    ------
    TimeoutError
        The child hangs; it is killed.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: there are threads
        child = os.fork()
    if not child:
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(_outcome(function))
        finally:
            os._exit(0)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            if not select.select([pipe], [], [], seconds)[0]:
                raise TimeoutError(f"a forked process hangs for {seconds} s")
            succeeded, result = pickle.load(pipe)
    finally:
        os.kill(child, signal.SIGKILL)  # only now is it reaped, so that the id is still its own
        os.waitpid(child, 0)
    if not succeeded:
        raise result
    return result


def _outcome(function: Callable[[], Any]) -> bytes:
    try:
        return pickle.dumps((True, function()))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent raises it
        return pickle.dumps((False, error))


@contextmanager
def spawned() -> Iterator[Callable[..., Any]]:
    """Calls functions in a process that was started afresh: arguments and results are pickled."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result(120)


def modules_after(code: str) -> set[str]:
    """Run code in a fresh process; return the modules that it loaded."""
    program = f"import sys\n{code}\nprint(*sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(process.stdout.split())

"""A scheduler of simulated processes: one runs at a time, chosen by a seed, in simulated time.

Each process is a thread that hands over wherever it calls `Scheduler.pause`, so that whole
programs run unchanged and in an order that the seed alone decides.
"""

from __future__ import annotations

import _thread
import heapq
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from tests.kit.stores import Crash

EPOCH_MS = 1_800_000_000_000
"""When simulated time begins, in milliseconds since 1970 UTC."""


class Killed(Crash):
    """The process dies here; whatever it still tries has no effect."""


@dataclass(slots=True, eq=False)
class _Process:
    name: str
    function: Callable[[], None]
    wakes_ms: int
    owes_ms: int = 0
    turn: Any = field(default_factory=_thread.allocate_lock)
    is_killed: bool = False
    error: BaseException | None = None


class Scheduler:
    """Runs processes one at a time until all have ended.

    Parameters
    ----------
    seed
        Decides every choice.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.elapsed_ms = 0
        self.switches = 0
        self._processes: list[_Process] = []
        self._later: list[tuple[int, int, Callable[[], object]]] = []
        self._announced = 0
        self._mine = threading.local()
        self._over = _thread.allocate_lock()

    @property
    def now_ms(self) -> int:
        """Simulated milliseconds since 1970 UTC."""
        return EPOCH_MS + self.elapsed_ms

    @property
    def process(self) -> str | None:
        """The name of the process that runs this code, None outside of any."""
        found: _Process | None = getattr(self._mine, "process", None)
        return found.name if found is not None else None

    def spawn(self, name: str, function: Callable[[], None]) -> None:
        """Add a process; it begins when `run` gives it a turn."""
        process = _Process(name, function, self.elapsed_ms)
        process.turn.acquire()
        self._processes.append(process)

    def later(self, delay_ms: int, event: Callable[[], object]) -> None:
        """Let something happen at a later time, outside of any process."""
        self._announced += 1
        heapq.heappush(self._later, (self.elapsed_ms + delay_ms, self._announced, event))

    def kill(self, name: str) -> None:
        """Let a process die at its next step."""
        for process in self._processes:
            if process.name == name:
                process.is_killed = True

    def run(self) -> None:
        """Run until every process has ended and every later event has happened.

        Raises
        ------
        Exception
            The first that a process did not handle.
        """
        every = list(self._processes)
        threads = [threading.Thread(target=self._run, args=(each,), daemon=True) for each in every]
        with self._own_time():
            self._over.acquire()
            for thread in threads:
                thread.start()
            if every:
                self._hand_over(self._next())
                self._over.acquire()
            self._over.release()
            for thread in threads:
                thread.join()
            self._until(None)
        for process in every:
            if process.error is not None:
                raise process.error

    def pause(self, milliseconds: int = 0) -> None:
        """Let others run; come back after so much simulated time.

        Outside of any process nothing happens.

        Raises
        ------
        Killed
            The process has been killed.
        """
        mine: _Process | None = getattr(self._mine, "process", None)
        if mine is None:
            return
        if not mine.is_killed:
            mine.wakes_ms = self.elapsed_ms + milliseconds + mine.owes_ms
            mine.owes_ms = 0
            chosen = self._next()
            if chosen is not mine:
                self._hand_over(chosen)
                mine.turn.acquire()
        if mine.is_killed:
            raise Killed(mine.name)

    def delay(self, milliseconds: int) -> None:
        """Make the next pause of the process longer: between the two it does nothing others see."""
        mine: _Process | None = getattr(self._mine, "process", None)
        if mine is not None:
            mine.owes_ms += milliseconds

    def _run(self, process: _Process) -> None:
        process.turn.acquire()
        self._mine.process = process
        try:
            process.function()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            process.error = error
        self._processes.remove(process)
        if self._processes:
            self._hand_over(self._next())
        else:
            self._over.release()

    def _hand_over(self, process: _Process) -> None:
        self.switches += 1
        process.turn.release()

    def _next(self) -> _Process:
        """Whose turn it is: one of those awake, else whoever wakes first."""
        earliest = min([process.wakes_ms for process in self._processes])
        self._until(max(earliest, self.elapsed_ms))
        awake = [each for each in self._processes if each.wakes_ms <= self.elapsed_ms]
        return awake[0] if len(awake) == 1 else self.random.choice(awake)

    def _until(self, elapsed_ms: int | None) -> None:
        """Move time on, letting happen what was due."""
        while self._later and (elapsed_ms is None or self._later[0][0] <= elapsed_ms):
            due, _, event = heapq.heappop(self._later)
            self.elapsed_ms = max(self.elapsed_ms, due)
            event()
        if elapsed_ms is not None:
            self.elapsed_ms = max(self.elapsed_ms, elapsed_ms)

    @contextmanager
    def _own_time(self) -> Iterator[None]:
        """Clock, sleep, random waits and unique names of the processes come from the seed."""
        with (
            mock.patch.object(time, "time_ns", self._either(time.time_ns, self._time_ns)),
            mock.patch.object(time, "time", self._either(time.time, self._time)),
            mock.patch.object(time, "monotonic", self._either(time.monotonic, self._monotonic)),
            mock.patch.object(time, "sleep", self._either(time.sleep, self._sleep)),
            mock.patch.object(random, "uniform", self._either(random.uniform, self._uniform)),
            mock.patch.object(uuid, "uuid4", self._either(uuid.uuid4, self.uuid4)),
        ):
            yield

    def _either(self, real: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
        """A function that is simulated for processes and real for every other thread."""

        def chosen(*arguments: Any) -> Any:
            return real(*arguments) if self.process is None else own(*arguments)

        return chosen

    def _time_ns(self) -> int:
        return self.now_ms * 1_000_000

    def _time(self) -> float:
        return self.now_ms / 1000

    def _monotonic(self) -> float:
        return self.elapsed_ms / 1000

    def _sleep(self, seconds: float) -> None:
        self.pause(int(seconds * 1000))

    def _uniform(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)

    def uuid4(self) -> uuid.UUID:
        """A unique name that the seed decides."""
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

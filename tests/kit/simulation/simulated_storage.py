"""A storage in memory that delays, fails, repeats and forgets, as its scheduler's seed decides.

Every request travels, takes effect, and is answered: other processes run in between. An
`AtomicStore` and an fsspec file system reach the same objects, so that tables run on it unchanged.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import fsspec
from fsspec import AbstractFileSystem

from fermion_table.storage.paths import MAIN, check_path, expired_directory
from fermion_table.storage.store import (
    METADATA_BYTES_MAX,
    CreateResult,
    StorageAccess,
    StoredObject,
)
from tests.kit.simulation.scheduler import Killed, Scheduler

Trouble = Literal["fails", "lost", "late", "twice", "forgotten", "outage"]
"""Of a request: refused; never arrives; arrives after the reply was given up; takes effect twice;
takes effect, but the reply is lost; the same, and the process has no connection for a while."""

_Result = TypeVar("_Result")
_PROTOCOL = "simulated"
_DAY_S = 24 * 3600  # time is simulated: the real clock must not end a call
_SLOTS = ("snapshot/0", "branch/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How often what goes wrong: probabilities per request, times in milliseconds.

    Attributes
    ----------
    fails, lost, late, twice, forgotten, outage
        See `Trouble`.
    killed
        The process dies, before or after the request took effect.
    stalls
        A request that creates if absent takes up to `stall_ms` to arrive.
    stale
        An object changed within the last `stale_ms` is listed as it was before; listings of tags
        and branches, and of those to be, are never stale. A hint is read as it was before.
    is_local
        A disk rather than an object store: writes can be torn by a death, creation is by link,
        nothing arrives late or twice.
    """

    fails: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    forgotten: float = 0.0
    outage: float = 0.0
    killed: float = 0.0
    stalls: float = 0.0
    stale: float = 0.0
    latency_ms: int = 20
    late_ms: int = 5_000
    outage_ms: int = 10_000
    stall_ms: int = 60_000
    stale_ms: int = 10_000
    is_local: bool = False

    @property
    def any_trouble(self) -> float:
        """How often anything of `Trouble` happens."""
        return self.fails + self.lost + self.late + self.twice + self.forgotten + self.outage


@dataclass(slots=True)
class SimulatedStorage:
    """The objects of one table.

    Parameters
    ----------
    scheduler, faults
        Who runs when, and what goes wrong.

    Attributes
    ----------
    objects
        What is stored, by path: bytes and the time of writing.
    slots
        Every content that a slot, tag or branch ever got: path and bytes, in order.
    violations
        What a storage sees to be wrong: two contents for a name that is used once.
    """

    scheduler: Scheduler
    faults: Faults = Faults()
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    slots: list[tuple[str, bytes]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    requests: int = 0
    troubles: dict[str, int] = field(default_factory=dict)
    _no_connection: dict[str, int] = field(default_factory=dict)
    _before: dict[str, tuple[bytes, int] | None] = field(default_factory=dict)
    _changed_ms: dict[str, int] = field(default_factory=dict)
    _first_kept: dict[str, int] = field(default_factory=dict)

    def request(
        self,
        effect: Callable[[], _Result],
        *,
        unknown: _Result | None = None,
        tear: Callable[[], None] | None = None,
        is_change: bool = True,
        is_late: bool = True,
    ) -> _Result:
        """Let a request travel, take effect and be answered, if all goes well.

        Parameters
        ----------
        effect
            What it does.
        unknown
            The answer of a creation when the reply is lost; None (anything else): that raises.
        tear
            What a death in the middle leaves.
        is_change
            Whether it changes anything; a read can fail, and no more.
        is_late
            Whether it may take effect after it was given up.
        """
        scheduler = self.scheduler
        if scheduler.process is None:
            return effect()
        self.requests += 1
        dice, faults = scheduler.random, self.faults
        delay = self._latency()
        if unknown is not None and faults.stalls and dice.random() < faults.stalls:
            delay = dice.randint(0, faults.stall_ms)
            self._count("stalls")
        scheduler.pause(delay)
        if self._no_connection.get(scheduler.process, 0) > scheduler.elapsed_ms:
            return self._no_reply(unknown)
        death = dice.random()
        if death < faults.killed / 2:
            self._die(tear if faults.is_local else None)
        trouble = self._trouble(is_change)
        if trouble == "fails" or (trouble == "late" and not is_late):
            raise OSError(errno.EIO, "simulated: the request failed")
        if trouble == "late":
            scheduler.later(dice.randint(0, faults.late_ms), effect)
        if trouble in ("lost", "late"):
            return self._no_reply(unknown)
        result = effect()
        if trouble == "twice":
            result = effect()
        if death > 1 - faults.killed / 2:
            self._die(None)
        scheduler.delay(self._latency())
        if trouble == "outage":
            lasts = dice.randint(0, faults.outage_ms)
            self._no_connection[scheduler.process] = scheduler.elapsed_ms + lasts
        if trouble in ("forgotten", "outage"):
            return self._no_reply(unknown)
        return result

    def first_kept(self, branch: str = MAIN) -> int:
        """The greatest id below which a branch was ever said to have expired."""
        return self._first_kept.get(expired_directory(branch), 0)

    def read(self, path: str) -> bytes:
        """The bytes of an object."""
        try:
            return self.objects[check_path(path)][0]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such object", path) from None

    def read_hint(self, path: str) -> bytes:
        """The bytes of an object, or what they were before."""
        if path.endswith("LATEST") and self._is_stale(path):
            before = self._before[path]
            if before is None:
                raise FileNotFoundError(errno.ENOENT, "no such object yet", path)
            return before[0]
        return self.read(path)

    def write(self, path: str, data: bytes) -> None:
        """Store an object whose name is used once."""
        found = self.objects.get(check_path(path))
        if found is not None and found[0] != data:
            self.violations.append(f"{path}: written twice, with different contents")
        self._put(path, data)

    def create(self, path: str, data: bytes) -> CreateResult:
        """Store an object unless there is one."""
        if check_path(path) in self.objects:
            return CreateResult.EXISTS
        directory, _, name = path.rpartition("/")
        if directory.endswith(expired_directory()):
            kept = int(name.partition("-")[0])
            self._first_kept[directory] = max(self._first_kept.get(directory, 0), kept)
        self._put(path, data)
        return CreateResult.CREATED

    def replace(self, path: str, data: bytes) -> None:
        """Store an object in place of another."""
        self._put(check_path(path), data)

    def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        found = self.objects.pop(check_path(path), None)
        if found is not None:
            self._remember(path, found)

    def list(self, directory: str) -> list[StoredObject]:
        """The objects below a directory; some as they were before."""
        prefix = f"{directory}/" if directory else ""
        known = self.objects.keys() | self._changed_ms.keys()
        found = []
        for path in sorted([path for path in known if path.startswith(prefix)]):
            fresh = path.startswith(("pending/", "tags/", "branch/", "expired/"))
            stale = not fresh and self._is_stale(path)
            stored = self._before[path] if stale else self.objects.get(path)
            if stored is not None:
                found.append(StoredObject(path, len(stored[0]), stored[1]))
        return found

    def _put(self, path: str, data: bytes) -> None:
        self._remember(path, self.objects.get(path))
        self.objects[path] = data, self.scheduler.now_ms
        if path.startswith(_SLOTS) and path.endswith(".json"):
            self.slots.append((path, data))

    def _remember(self, path: str, stored: tuple[bytes, int] | None) -> None:
        self._before[path] = stored
        self._changed_ms[path] = self.scheduler.elapsed_ms

    def _is_stale(self, path: str) -> bool:
        changed = self._changed_ms.get(path)
        if changed is None or not self.faults.stale or self.scheduler.process is None:
            return False
        if changed < self.scheduler.elapsed_ms - self.faults.stale_ms:
            return False
        return self.scheduler.random.random() < self.faults.stale

    def _latency(self) -> int:
        """Milliseconds that a request or its reply travels."""
        return int(self.scheduler.random.random() * (self.faults.latency_ms + 1))

    def _trouble(self, is_change: bool) -> Trouble | None:
        faults = self.faults
        drawn = self.scheduler.random.random()
        if drawn >= faults.any_trouble:
            return None
        for trouble in ("fails", "lost", "late", "twice", "forgotten", "outage"):
            drawn -= getattr(faults, trouble)
            if drawn < 0:
                if not is_change and trouble != "fails":
                    return None
                self._count(trouble)
                return trouble  # type: ignore[return-value]
        return None

    def _die(self, tear: Callable[[], None] | None) -> None:
        self._count("killed")
        if tear is not None:
            tear()
        name = self.scheduler.process
        assert name is not None
        self.scheduler.kill(name)
        raise Killed(name)

    def _no_reply(self, unknown: _Result | None) -> _Result:
        if unknown is not None:
            return unknown
        raise TimeoutError(errno.ETIMEDOUT, "simulated: no reply")

    def _count(self, trouble: str) -> None:
        self.troubles[trouble] = self.troubles.get(trouble, 0) + 1


class SimulatedStore:
    """An `AtomicStore` on a simulated storage.

    Parameters
    ----------
    storage
        Where the objects are.
    name
        Of the table, in its location; one storage has one name.
    """

    storage_options: dict[str, Any] | None = None
    access = StorageAccess(timeout_s=_DAY_S)

    def __init__(self, storage: SimulatedStorage, name: str) -> None:
        self.storage = storage
        self.location = f"{_PROTOCOL}://storage/{name}"
        SimulatedFileSystem.storages[name] = storage

    def read(self, path: str, stop: int = METADATA_BYTES_MAX) -> bytes:
        """The bytes of an object up to `stop`."""
        return self.storage.request(lambda: self.storage.read_hint(path)[:stop], is_change=False)

    def exists(self, path: str) -> bool:
        """Whether the object exists."""
        return self.storage.request(lambda: path in self.storage.objects, is_change=False)

    def size(self, path: str) -> int:
        """Bytes of an object."""
        return len(self.read(path))

    def list(self, directory: str = "") -> Iterator[StoredObject]:
        """Every object below a directory."""
        listing = self.storage.request(lambda: self.storage.list(directory), is_change=False)
        yield from listing

    def write(self, path: str, data: bytes) -> None:
        """Store a new object."""
        half = data[: len(data) // 2]
        self.storage.request(
            lambda: self.storage.write(path, data), tear=lambda: self.storage.write(path, half)
        )

    def create_if_absent(self, path: str, data: bytes) -> CreateResult:
        """Store an object unless there is one: at once, or by way of a temporary file."""
        unknown = CreateResult.UNKNOWN
        if not self.storage.faults.is_local:
            return self.storage.request(lambda: self.storage.create(path, data), unknown=unknown)
        if self.exists(path):
            return CreateResult.EXISTS
        temporary = f"{path}.{self.storage.requests}.tmp"
        self.write(temporary, data)
        result = self.storage.request(
            lambda: self.storage.create(path, self.storage.read(temporary)), unknown=unknown
        )
        self.storage.delete(temporary)
        return result

    def overwrite_hint(self, path: str, data: bytes) -> None:
        """Store a hint."""
        self.storage.request(lambda: self.storage.replace(path, data), is_late=False)

    def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        self.storage.request(lambda: self.storage.delete(path))

    def fsync(self, paths: Iterable[str]) -> None:
        """Nothing to do."""

    def locate(self, path: str, *, for_writing: bool = False) -> str:
        """The URL of an object."""
        return f"{self.location}/{check_path(path)}"


class SimulatedFileSystem(AbstractFileSystem):
    """Simulated storages as a file system: what reads and writes data files goes through it."""

    protocol = _PROTOCOL
    cachable = False
    storages: dict[str, SimulatedStorage] = {}  # noqa: RUF012 - shared on purpose

    def _find(self, path: str) -> tuple[SimulatedStorage, str]:
        _, name, inner = self._strip_protocol(path).split("/", 2)
        return self.storages[name], inner

    def size(self, path: str) -> int:
        """Bytes of an object."""
        storage, inner = self._find(path)
        return storage.request(lambda: len(storage.read(inner)), is_change=False)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Name and size of an object."""
        return {"name": path, "size": self.size(path), "type": "file"}

    def exists(self, path: str, **options: Any) -> bool:
        """Whether the object exists."""
        storage, inner = self._find(path)
        return storage.request(lambda: inner in storage.objects, is_change=False)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        """Some bytes of an object."""
        storage, inner = self._find(path)
        return storage.request(lambda: storage.read(inner)[start:end], is_change=False)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copy an object, whole."""
        storage, source = self._find(path1)
        _, target = self._find(path2)
        storage.read(source)

        def copy() -> None:
            found = storage.objects.get(source)
            if found is not None:  # it may have been given up and removed before this arrives
                storage.write(target, found[0])

        storage.request(copy)

    def rm_file(self, path: str) -> None:
        """Delete an object."""
        storage, inner = self._find(path)
        storage.request(lambda: storage.delete(inner))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        storage, inner = self._find(path)
        if mode == "rb":
            return io.BytesIO(self.cat_file(path))
        return _Upload(storage, inner)


class _Upload(io.BytesIO):
    """A new object, stored when it is closed."""

    def __init__(self, storage: SimulatedStorage, path: str) -> None:
        super().__init__()
        self._storage = storage
        self._path = path

    def discard(self) -> None:
        """Store nothing."""
        super().close()

    def close(self) -> None:
        """Store what was written."""
        if self.closed:
            return
        data, storage, path = self.getvalue(), self._storage, self._path
        super().close()
        half = data[: len(data) // 2]
        storage.request(lambda: storage.write(path, data), tear=lambda: storage.write(path, half))

    def __del__(self) -> None:
        super().close()


fsspec.register_implementation(_PROTOCOL, SimulatedFileSystem, clobber=True)

"""The reader of an epoch: batches of one rank, in an order that all ranks share."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from fermion.arguments import flag, integer
from fermion.display import facts_repr
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion.exports import dataclass
from fermion.forks import Lock, PerProcess, ThreadPool, cached_property
from fermion.io.read_ahead import iterate_ahead
from fermion.options import TRAINING_LANES, TRAINING_WINDOW_ROWS
from fermion.progress import Report, shown_bar
from fermion.redaction import logger
from fermion.training.batch import (
    NullRule,
    TrainingBatch,
    fill_scalar,
    is_numeric,
    make_batch,
)
from fermion.training.blocks import (
    BLOCK_ROWS,
    Blocks,
    BlockSource,
    DamageSkipper,
    OnDamage,
    ReadPlaces,
    TrainingUnits,
    read_places,
)
from fermion.training.epoch import Epoch, Last, Share, SlotEpoch, UnitEpoch
from fermion.training.order import EpochOrder, Shuffle, UnitOrder

if TYPE_CHECKING:
    import datasets

    from fermion.training.torch_dataset import TorchDataset

BATCHES_AHEAD = 2
"""Batches that wait for the consumer, so that the one in use is the third."""
STATE_VERSION = 1
_MAXIMA = {"window_rows": 2**62, "seed": 2**128 - 1}
"""Numbers of rows are 64-bit integers; a seed has as many bits as NumPy and torch give."""
_log = logger(__name__)
_Step: TypeAlias = tuple[TrainingBatch, int]
"""A batch, and the place in the order after it."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """What a `TrainingReader` is asked for; see there."""

    batch_rows: int
    seed: int = 0
    shuffle: Shuffle | None = "rows"
    rank: int | None = None
    world_size: int | None = None
    last: Last = "short"
    lanes: int = TRAINING_LANES
    window_rows: int = TRAINING_WINDOW_ROWS
    threads: int | None = None
    fill: Mapping[str, Any] | None = None
    mask: bool = False
    on_damage: OnDamage = "error"

    def __post_init__(self) -> None:
        least = {"batch_rows": 1, "seed": 0, "lanes": 1, "window_rows": 1, "threads": 1}
        for name, minimum in least.items():
            value = getattr(self, name)
            if value is not None or name != "threads":
                number = integer(value, name, minimum=minimum, maximum=_MAXIMA.get(name))
                object.__setattr__(self, name, number)
        flag(self.mask, "mask")
        if self.shuffle == "batches" and self.last == "repeat":
            raise InvalidArgumentError(
                "last='repeat': batches are never split, so none comes twice"
            )
        _one_of(self.shuffle, "shuffle", (*get_args(Shuffle), None))
        _one_of(self.last, "last", get_args(Last))
        _one_of(self.on_damage, "on_damage", get_args(OnDamage))
        if self.fill is not None and not isinstance(self.fill, Mapping):
            found = type(self.fill).__name__
            raise TypeError(f"fill={self.fill!r}: expected values by column, found {found}")
        rank, world_size = self.rank, self.world_size
        if rank is None and world_size is None:
            rank, world_size = _place_in_world()
        elif rank is None or world_size is None:
            raise InvalidArgumentError("rank and world_size: expected both or neither")
        world_size = integer(world_size, "world_size", minimum=1)
        rank = integer(rank, "rank", minimum=0)
        if rank >= world_size:
            raise InvalidArgumentError(f"rank={rank}: expected 0 to {world_size - 1}")
        object.__setattr__(self, "rank", rank)
        object.__setattr__(self, "world_size", world_size)


@dataclass
class TrainingStats:
    """What a reader has done so far, in this process.

    Attributes
    ----------
    rows, batches
        That were given out.
    bytes_read
        That were requested from storage.
    seconds
        From the first batch that was asked for to the last one that was given out.
    seconds_waited
        Of these, how long the consumer waited for batches: training waits for data.
    seconds_ahead
        Of these, how long reading paused, as enough batches waited for the consumer.
    rows_skipped, blocks_skipped
        With ``on_damage="skip"``: what was left out of what has been read, as it is damaged.
    """

    rows: int = 0
    batches: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    seconds_waited: float = 0.0
    seconds_ahead: float = 0.0
    rows_skipped: int = 0
    blocks_skipped: int = 0
    _started: float | None = field(default=None, repr=False)

    def add_wait(self, asked: float, given: float) -> None:
        """Count that the consumer waited between two readings of the clock."""
        if self._started is None:
            self._started = asked
        self.seconds_waited += given - asked
        self.seconds = given - self._started

    @property
    def rows_per_second(self) -> float:
        """Of `rows` and `seconds`."""
        return self.rows / self.seconds if self.seconds else 0.0


class TrainingReader:
    """Rows of one snapshot or file, epoch after epoch, for one rank of several.

    For the same rows, seed, epoch, ``lanes``, ``window_rows`` and ``batch_rows * world_size`` the
    union over ranks of a global step is the same for every number of ranks, workers and threads.
    With ``last="short"`` every row comes once an epoch. A pickled reader goes on where it stood.

    Make one with `Scan.training` or `FermionFile.training`.

    Parameters
    ----------
    source
        Where rows come from.
    options
        As of `Scan.training`.
    """

    def __init__(self, source: BlockSource, options: TrainingOptions) -> None:
        self._source, self._options = source, options
        self._rule = _null_rule(source.schema, options)
        self._pool = ThreadPool(options.threads or os.cpu_count() or 1)
        self._epoch, self._place, self._step = 0, 0, 0
        self._stats, self._skipper = TrainingStats(), DamageSkipper(source)
        if options.shuffle == "batches":
            self._units  # noqa: B018 - rows that are not in batches are an error now
        elif options.last == "drop" and int(source.slots.sum()) < self._share.step_rows:
            raise InvalidArgumentError(
                f"batch_rows={options.batch_rows}, world_size={self.world_size}: a global step has "
                f"more than the {source.slots.sum()} rows that there are, so that with last='drop' "
                "an epoch has no step"
            )

    def __reduce__(self) -> tuple[Callable[..., TrainingReader], tuple[Any, ...]]:
        at = self._epoch, self._place, self._step
        return _reader_at, (self._source, self._options, at)

    @property
    def schema(self) -> pa.Schema:
        """The columns of a batch."""
        return self._source.schema

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""
        return self._options.rank or 0

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self._options.world_size or 1

    @cached_property
    def _share(self) -> Share:
        options = self._options
        return Share(self.rank, self.world_size, options.batch_rows, options.last)

    @cached_property
    def _blocks(self) -> Blocks:
        return Blocks.cut(self._source.slots, BLOCK_ROWS)

    @cached_property
    def _units(self) -> TrainingUnits:
        return self._source.units()

    def _make_epoch(self, number: int) -> Epoch:
        options, source = self._options, self._source
        read: ReadPlaces = self._skipper.read
        if options.on_damage == "error":
            read = partial(read_places, source)
        for_rank = self._share, self._rule, self._pool
        if options.shuffle == "batches":
            units = self._units
            rows = np.bincount(units.numbers, units.stops - units.starts).astype(np.int64)
            units_order = UnitOrder(rows, seed=options.seed, epoch=number)
            return UnitEpoch(read, units, units_order, *for_rank)
        order = EpochOrder(
            self._blocks.slots,
            shuffle=options.shuffle,
            seed=options.seed,
            epoch=number,
            lanes=options.lanes,
            window_slots=options.window_rows,
        )
        return SlotEpoch(read, self._blocks, order, *for_rank)

    def __iter__(self) -> Iterator[TrainingBatch]:
        """The batches of the epoch where the reader stands; then it stands at the next one."""
        return self.epoch(self._epoch)

    def epoch(self, number: int, *, progress: bool | Report = False) -> Iterator[TrainingBatch]:
        """The batches of an epoch: from its start, or from where the reader stands in it.

        Every rank gets as many. With a filter, and in a primary-key table with rows that are yet to
        be merged, rows are left out after they were dealt: batches have fewer rows then.

        Parameters
        ----------
        number
            Of the epoch, from 0.
        progress
            True: a bar on the terminal or in the notebook, if this runs in one; or a function that
            is called with the batches that were given out and with their total.

        Raises
        ------
        ChecksumError, InvalidFileError, TruncatedFileError
            A file is damaged; with ``on_damage="skip"`` its rows are left out.
        InvalidArgumentError
            A column has nulls, and nothing says what becomes of them.
        """
        number = integer(number, "number", minimum=0)
        if number != self._epoch:
            self._epoch, self._place, self._step = number, 0, 0
        batches = self.batches_from(number, self._place, self._step)
        if progress is False:
            return batches
        if progress is not True and not callable(progress):
            found = type(progress).__name__
            raise TypeError(f"progress={progress!r}: expected a bool or a function, found {found}")
        return self._reported(batches, f"epoch {number}", progress)

    def _reported(
        self, batches: Iterator[TrainingBatch], label: str, progress: bool | Report
    ) -> Iterator[TrainingBatch]:
        with contextlib.ExitStack() as stack:
            report = stack.enter_context(shown_bar(label)) if progress is True else progress
            assert callable(report)
            for batch in batches:
                yield batch
                report(batch.step + 1, len(self))

    def batches_from(
        self, epoch: int, place: int = 0, step: int = 0, *, worker: int = 0, workers: int = 1
    ) -> Iterator[TrainingBatch]:
        """The batches of an epoch from a place in it, of one of several workers; for loaders.

        Parameters
        ----------
        place, step
            Where to begin.
        worker, workers
            The steps whose numbers leave ``worker`` when divided by ``workers``.
        """
        stats, batches = self._stats, 0
        steps = self._timed(self._made(epoch, place, step, worker, workers))
        ahead = iterate_ahead(steps, BATCHES_AHEAD + 1)
        began, waited = time.perf_counter(), stats.seconds_waited
        while True:
            asked = time.perf_counter()
            item = next(ahead, None)
            stats.add_wait(asked, time.perf_counter())
            if item is None:
                break
            batch, place = item
            self._epoch, self._place, self._step = epoch, place, batch.step + 1
            stats.rows += batch.num_rows
            stats.batches, batches = stats.batches + 1, batches + 1
            yield batch
        self._epoch, self._place, self._step = epoch + 1, 0, 0
        seconds, waited = time.perf_counter() - began, stats.seconds_waited - waited
        _log.info(
            "epoch %d of rank %d of %d: %d batches in %.1f s, of which %.1f s waited for data",
            *(epoch, self.rank, self.world_size, batches, seconds, waited),
            extra={"epoch": epoch, "batches": batches, "seconds": seconds, "waited": waited},
        )

    def _timed(self, steps: Iterator[_Step]) -> Iterator[_Step]:
        for step in steps:
            given = time.perf_counter()
            yield step
            self._stats.seconds_ahead += time.perf_counter() - given

    def _made(
        self, epoch: int, place: int, step: int, worker: int, workers: int
    ) -> Iterator[_Step]:
        """Batches, each with the place in the order after it; they are made when asked for."""
        steps = self._make_epoch(epoch)
        try:
            while (end := steps.step_end(place)) is not None:
                if step % workers == worker:
                    yield self._batch(steps, place, epoch, step), end
                place, step = end, step + 1
        finally:
            steps.close()

    def _batch(self, steps: Epoch, place: int, epoch: int, step: int) -> TrainingBatch:
        return make_batch(self.schema, steps.rows(place), self._rule, epoch=epoch, step=step)

    def _step_starts(self, epoch: int) -> np.ndarray:
        """Where each step of an epoch begins: ``int64``."""
        if self._options.shuffle != "batches":
            return np.arange(len(self)) * self._share.step_rows
        steps, starts = self._make_epoch(epoch), [0]
        while (end := steps.step_end(starts[-1])) is not None:
            starts.append(end)
        return np.array(starts[:-1], np.int64)

    def batches(self, epoch: int) -> EpochBatches:
        """The batches of an epoch by their numbers, as map-style datasets take a sequence.

        Parameters
        ----------
        epoch
            Its number, from 0.
        """
        return EpochBatches(self, integer(epoch, "epoch", minimum=0))

    def hugging_face_dataset(self, epoch: int = 0) -> datasets.IterableDataset:
        """The rows of an epoch as an `IterableDataset` of Hugging Face, whose state is exact.

        Its shards are the batches: `state_dict` and `load_state_dict` go on at any row without
        reading what came before, and workers of a ``DataLoader`` share the batches.

        Parameters
        ----------
        epoch
            Its number, from 0.
        """
        from fermion.training.hugging_face import dataset_of  # optional, and slow to import

        return dataset_of(self.batches(epoch), self.schema)

    def __len__(self) -> int:
        """Batches of an epoch, the same for every rank."""
        if self._options.shuffle != "batches":
            rows, step_rows = int(self._source.slots.sum()), self._share.step_rows
            return rows // step_rows if self._options.last == "drop" else -(-rows // step_rows)
        return len(self._step_starts(0))

    def count(self) -> int:
        """Rows of an epoch, of all ranks; reads the columns of a filter, and keys to be merged."""
        return self._source.count()

    def stats(self) -> TrainingStats:
        """What this reader has done so far, in this process: a copy."""
        return replace(
            self._stats,
            bytes_read=self._source.bytes_read(),
            rows_skipped=self._skipper.rows,
            blocks_skipped=self._skipper.blocks,
        )

    def state_dict(self) -> dict[str, Any]:
        """Where the reader stands, as JSON values: after the batch that was given out last.

        It does not depend on the rank, and another reader of the same rows, order and seed goes on
        from it, with any ``world_size`` and ``batch_rows``.
        """
        return {
            "version": STATE_VERSION,
            "epoch": self._epoch,
            "place": self._place,
            "step": self._step,
            "plan": self._plan(),
        }

    def _plan(self) -> dict[str, Any]:
        options = self._options
        schema = hashlib.sha256(str(self.schema.remove_metadata()).encode()).hexdigest()
        return {
            **self._source.identity,
            "columns": schema[:16],
            "slots": int(self._source.slots.sum()),
            "seed": options.seed,
            "shuffle": options.shuffle,
            "lanes": options.lanes,
            "window_rows": options.window_rows,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where another reader stood.

        Raises
        ------
        InvalidArgumentError
            The state is of other rows, of another order or version; the reader stays where it was.
        TypeError
            It is no state.
        """
        names = ("version", "epoch", "place", "step", "plan")
        if not isinstance(state, Mapping) or any(name not in state for name in names):
            raise TypeError(f"state: expected what state_dict() gives, found {state!r:.200}")
        version = integer(state["version"], "state['version']")
        if version != STATE_VERSION:
            raise InvalidArgumentError(f"state: version {version}, expected {STATE_VERSION}")
        own, other = self._plan(), state["plan"]
        if not isinstance(other, Mapping):
            raise TypeError(f"state['plan']: expected a mapping, found {other!r:.200}")
        differing = [
            f"{name} was {other.get(name)!r} and is {own.get(name)!r}"
            for name in dict.fromkeys([*own, *other])
            if own.get(name) != other.get(name)
        ]
        if differing:
            raise InvalidArgumentError(f"state of another plan: {', '.join(differing)}")
        is_of_units = self._options.shuffle == "batches"
        places = len(np.unique(self._units.numbers)) if is_of_units else own["slots"]
        epoch = integer(state["epoch"], "state['epoch']", minimum=0)
        place = integer(state["place"], "state['place']", minimum=0, maximum=places)
        step = integer(state["step"], "state['step']", minimum=min(place, 1), maximum=place)
        self._epoch, self._place, self._step = epoch, place, step

    def torch_dataset(self, *, tensors: bool = True) -> TorchDataset:
        """The batches as a `torch.utils.data.IterableDataset`, for a loader's ``batch_size=None``.

        Parameters
        ----------
        tensors
            Give dicts of tensors (`TrainingBatch.to_torch`); False: batches.
        """
        from fermion.training.torch_dataset import TorchDataset  # torch is slow to import

        return TorchDataset(self, tensors=flag(tensors, "tensors"))

    def __repr__(self) -> str:
        options = self._options
        facts = {
            **self._source.identity,
            "batch_rows": options.batch_rows,
            "shuffle": options.shuffle,
            "seed": options.seed,
            "rank": f"{self.rank} of {self.world_size}",
            "at": f"epoch {self._epoch}, step {self._step}",
        }
        return facts_repr("TrainingReader", facts)


class EpochBatches:
    """The batches of an epoch by their numbers: ``batches[7]`` is what its eighth step gives.

    A sequence, as map-style datasets of PyTorch and Grain's ``MapDataset.source`` take one. Any
    batch is computed; those near the last one that was asked for are in memory already. Processes
    and threads may share it; a pickle holds no rows. Make one with `TrainingReader.batches`.

    Parameters
    ----------
    reader
        Whose rank's batches.
    epoch
        Number of the epoch.
    """

    def __init__(self, reader: TrainingReader, epoch: int) -> None:
        self._reader, self.epoch = reader, epoch
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[EpochBatches], tuple[TrainingReader, int]]:
        return type(self), (self._reader, self.epoch)

    @cached_property
    def _steps(self) -> PerProcess[Epoch]:
        return PerProcess(partial(self._reader._make_epoch, self.epoch))

    @cached_property
    def _places(self) -> np.ndarray:
        return self._reader._step_starts(self.epoch)

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, step: int) -> TrainingBatch:
        """A batch; numbers below 0 count from the end.

        Raises
        ------
        IndexError
            The epoch has no such step.
        TypeError
            No integer.
        """
        wanted, steps = integer(step, "step"), len(self)
        if not -steps <= wanted < steps:
            raise IndexError(f"step {wanted}: epoch {self.epoch} has {steps} batches")
        wanted %= steps
        with self._lock.get():
            return self._reader._batch(
                self._steps.get(), int(self._places[wanted]), self.epoch, wanted
            )

    def __repr__(self) -> str:
        return f"EpochBatches of epoch {self.epoch}: {len(self)} of {self._reader!r}"


def _reader_at(
    source: BlockSource, options: TrainingOptions, at: tuple[int, int, int]
) -> TrainingReader:
    reader = TrainingReader(source, options)
    reader._epoch, reader._place, reader._step = at
    return reader


def _one_of(value: Any, name: str, allowed: Sequence[Any]) -> None:
    if not any(value is each or (isinstance(value, str) and value == each) for each in allowed):
        raise InvalidArgumentError(
            f"{name}={value!r}: expected one of {', '.join(map(repr, allowed))}"
        )


def _place_in_world() -> tuple[int, int]:
    """Rank and number of ranks: of torch.distributed if in use, of the environment, or one."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank, world_size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None and world_size is None:
        return 0, 1
    if rank is None or world_size is None or not (rank.isdecimal() and world_size.isdecimal()):
        raise InvalidArgumentError(
            f"RANK={rank!r}, WORLD_SIZE={world_size!r} in the environment: expected both as "
            "integers, or rank and world_size as arguments"
        )
    return int(rank), int(world_size)


def _null_rule(schema: pa.Schema, options: TrainingOptions) -> NullRule:
    fill = dict(options.fill or {})
    for name, value in fill.items():
        if name not in schema.names:
            raise ColumnNotFoundError(f"fill: no column {name!r} is read")
        field = schema.field(name)
        if not is_numeric(field.type):
            raise InvalidArgumentError(
                f"fill={{{name!r}: ...}}: a column of {field.type} is an Arrow array in a batch, "
                "which holds nulls"
            )
        fill_scalar(value, field)
    return NullRule(fill, bool(options.mask))

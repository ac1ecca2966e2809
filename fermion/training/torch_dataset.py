"""The batches of a reader as a dataset of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch.utils.data import IterableDataset, get_worker_info

from fermion.arguments import integer
from fermion.training.batch import TrainingBatch


class Reader(Protocol):
    """What is asked of a `TrainingReader`."""

    def __len__(self) -> int: ...

    def batches_from(
        self, epoch: int, place: int, step: int, *, worker: int, workers: int
    ) -> Iterator[TrainingBatch]:
        """Every ``workers``-th batch of an epoch."""

    def state_dict(self) -> dict[str, Any]:
        """Where the reader stands."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""


class TorchDataset(IterableDataset[Any]):
    """Batches of a `TrainingReader`, for ``DataLoader(dataset, batch_size=None)``.

    Worker *j* of *n* makes every *n*-th batch, from the *j*-th on, so that batches and their order
    are those without workers. With torchdata's ``StatefulDataLoader`` an epoch goes on where its
    state was taken.
    """

    def __init__(self, reader: Reader, *, tensors: bool) -> None:
        self._reader, self._tensors = reader, tensors
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # workers see it change
        self._go_on_from(reader.state_dict())

    def _go_on_from(self, state: Mapping[str, Any]) -> None:
        self._start: Mapping[str, Any] | None = state
        self._epoch.fill_(state["epoch"])

    def set_epoch(self, number: int) -> None:
        """Choose the epoch of the next iterator, in all workers, also persistent ones."""
        self._epoch.fill_(integer(number, "number", minimum=0))

    def __len__(self) -> int:
        return len(self._reader)

    def __iter__(self) -> Iterator[Any]:
        """The epoch from its start; after a state was loaded, once from there."""
        worker, epoch, start = get_worker_info(), int(self._epoch), self._start
        self._start = None
        place, step = 0, 0
        if start is not None and start["epoch"] == epoch:
            place, step = start["place"], start["step"]
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        batches = self._reader.batches_from(epoch, place, step, worker=number, workers=workers)
        return (batch.to_torch() for batch in batches) if self._tensors else batches

    def state_dict(self) -> dict[str, Any]:
        """Where this worker's iterator stands, as `TrainingReader.state_dict` gives it."""
        return self._reader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; errors are those of `TrainingReader.load_state_dict`."""
        self._reader.load_state_dict(state)
        self._go_on_from(state)

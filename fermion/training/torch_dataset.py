"""The batches of a reader as a dataset of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch.utils.data import IterableDataset, get_worker_info

from fermion.training.batch import TrainingBatch


class Reader(Protocol):
    """What is asked of a `TrainingReader`."""

    def __len__(self) -> int: ...

    def batches_of(
        self, epoch: int, place: int, step: int, *, worker: int, workers: int
    ) -> Iterator[tuple[TrainingBatch, int]]:
        """Every ``workers``-th batch, each with the place after it."""

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
        state = reader.state_dict()
        self._next = state["epoch"], state["place"], state["step"]
        self._epoch.fill_(state["epoch"])

    def set_epoch(self, number: int) -> None:
        """Choose the epoch of the next iterator, in all workers, also persistent ones."""
        self._epoch.fill_(number)

    def __len__(self) -> int:
        return len(self._reader)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        epoch, place, step = self._next
        if epoch != int(self._epoch):
            epoch, place, step = int(self._epoch), 0, 0
        chosen = (0, 1) if worker is None else (worker.id, worker.num_workers)
        batches = self._reader.batches_of(epoch, place, step, worker=chosen[0], workers=chosen[1])
        for batch, end in batches:
            self._next = epoch, end, batch.step + 1
            yield batch.to_torch() if self._tensors else batch
        self._next = epoch, 0, 0

    def state_dict(self) -> dict[str, Any]:
        """Where this worker's iterator stands, as `TrainingReader.state_dict` gives it."""
        epoch, place, step = self._next
        return {**self._reader.state_dict(), "epoch": epoch, "place": place, "step": step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; errors are those of `TrainingReader.load_state_dict`."""
        self._reader.load_state_dict(state)
        self._next = state["epoch"], state["place"], state["step"]
        self._epoch.fill_(state["epoch"])

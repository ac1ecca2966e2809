"""The batches of an epoch as a dataset of Hugging Face."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
from datasets import DatasetInfo, Features, IterableDataset
from datasets.iterable_dataset import ArrowExamplesIterable

from fermion.training.batch import TrainingBatch


class Batches(Protocol):
    """What is asked of an `EpochBatches`."""

    def __len__(self) -> int: ...

    def __getitem__(self, step: int) -> TrainingBatch: ...


def dataset_of(batches: Batches, schema: pa.Schema) -> IterableDataset:
    """The rows of batches; each batch is a shard."""
    steps = list(range(len(batches)))
    rows = ArrowExamplesIterable(_tables, {"batches": batches, "steps": steps})
    return IterableDataset(rows, DatasetInfo(features=Features.from_arrow_schema(schema)))


def _tables(batches: Batches, steps: list[int]) -> Iterator[tuple[str, pa.Table]]:
    for step in steps:
        yield str(step), pa.Table.from_batches([batches[step].to_arrow()])

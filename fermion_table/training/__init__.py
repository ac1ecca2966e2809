"""Rows for models: readers, and joins of labels with features as they were at a point in time.

`Scan.training` and `FermionFile.training` give a `TrainingReader`, which gives `TrainingBatch`
after `TrainingBatch`. `training_frame` joins labels with `FeatureSource` after `FeatureSource`.
The module `ray_data` has sources and targets of Ray Data; it needs Ray.
"""

from fermion.engine import EpochBatches, TrainingBatch, TrainingReader, TrainingStats
from fermion_table.training.frame import FeatureSource, PlannedSource, TrainingFrame, training_frame

__all__ = [
    "EpochBatches",
    "FeatureSource",
    "PlannedSource",
    "TrainingBatch",
    "TrainingFrame",
    "TrainingReader",
    "TrainingStats",
    "training_frame",
]

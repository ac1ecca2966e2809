"""Rows for models: readers, and joins of labels with features as they were at a point in time.

`Scan.training` and `FermionFile.training` give a `TrainingReader`, which gives `TrainingBatch`
after `TrainingBatch`. `training_frame` joins labels with `FeatureSource` after `FeatureSource`.
"""

from fermion.engine import TrainingBatch, TrainingReader, TrainingStats
from fermion_table.training.frame import FeatureSource, PlannedSource, TrainingFrame, training_frame

__all__ = [
    "FeatureSource",
    "PlannedSource",
    "TrainingBatch",
    "TrainingFrame",
    "TrainingReader",
    "TrainingStats",
    "training_frame",
]

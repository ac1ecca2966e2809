"""Aggregates in tasks: expressions over record batches, and partial results of groups."""

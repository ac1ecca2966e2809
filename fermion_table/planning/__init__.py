"""What to read: plans of scans, pruned by partitions, bounds and batch ids; pure functions."""

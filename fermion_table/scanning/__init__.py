"""Scans: planning, pruning, splits and reading."""

"""Rows out of splits: one file, its column files, or a run of files."""

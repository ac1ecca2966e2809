"""Data files: partitions, sorting, and the entries that describe the files."""

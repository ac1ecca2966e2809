"""Merge engines: how the rows of one key become one row; one file an engine, pure functions."""

"""Storages with an atomic create, paths of a table, and JSON as bytes."""

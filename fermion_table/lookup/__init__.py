"""Rows by primary key, from files that are held open."""

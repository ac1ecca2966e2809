"""Scans: what a query asks of a table, and the forms its result takes."""

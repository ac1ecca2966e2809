"""Transactions: added files, and rows deleted, updated and merged."""

"""Verification of a table."""

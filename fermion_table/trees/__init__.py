"""Sorted runs of primary-key tables, merged for a scan."""

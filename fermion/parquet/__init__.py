"""Conversion from and to Parquet."""

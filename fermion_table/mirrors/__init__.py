"""Copies of a table that other engines read: Delta, Iceberg and Paimon tables of Parquet files."""

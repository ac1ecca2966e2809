"""Converts Parquet files to tables and tables to Parquet files, file by file."""

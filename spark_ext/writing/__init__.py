"""Writes data frames: tasks write the data files, the driver commits once."""

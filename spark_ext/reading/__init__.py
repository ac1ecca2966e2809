"""Reads tables into data frames: planned on the driver, read by tasks."""

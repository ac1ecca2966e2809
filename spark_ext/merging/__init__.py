"""Merges the rows of data frames into tables: joined by Spark, written in tasks, one commit."""

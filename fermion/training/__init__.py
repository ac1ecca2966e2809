"""Rows into models: a shuffled order that any number of machines shares, and its readers."""

"""Columns with field ids: types, values, transforms, sorting, evolution."""

"""The data source `format("fermion")`: batches and streams, read and written."""

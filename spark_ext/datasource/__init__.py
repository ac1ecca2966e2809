"""`format("fermion")`: batch and streaming, reading and writing."""

"""A real HDFS on the loopback interface, for tests and benchmarks: ``python -m tools.hdfs``."""

"""Tests with Apache Flink, in the environment of `make test-flink`."""

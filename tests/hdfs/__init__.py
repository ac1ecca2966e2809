"""Files and tables on a real HDFS; `make test-services` runs these tests."""

"""Files and tables on Ceph's S3 gateway; `make test-services` runs these tests."""

"""A real Ceph with its S3 gateway on the loopback interface: ``python -m tools.ceph``."""

"""Primary-key tables beside Apache Paimon's Java engine, where `make paimon` has installed it."""

"""Readers under bytes that a coverage-guided fuzzer makes: targets, a driver, and what it found."""

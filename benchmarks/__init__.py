"""Benchmarks: one module a question. ``docs/performance.md`` says how to run and read them."""

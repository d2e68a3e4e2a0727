"""Operators of other libraries through their own public functions: `python -m benchmarks.third_party`."""

"""Measurements: each module is a script that prints a table and saves it as JSON under benchmarks/results."""

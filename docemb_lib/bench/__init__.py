"""Benchmarks of docemb and its peers in one process: student, Paragraph Vector, heads."""

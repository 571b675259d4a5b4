"""Benchmarks of docemb and its peers in one process: student, embed, Paragraph Vector, heads."""

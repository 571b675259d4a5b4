"""Benchmarks of docemb beside its peers, both sides in one process: student, Paragraph Vector,
heads.
"""

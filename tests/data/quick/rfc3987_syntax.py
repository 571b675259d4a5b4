"""Absent in tests: jsonschema does without this package, which compiles a grammar for seconds in
every process.
"""

raise ImportError

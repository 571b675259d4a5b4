"""Errors, progress bars, the machine, checksums, worker processes and model files.

Nothing in this package knows of documents.
"""

__version__ = "0.1.0"

"""What knows nothing of documents: errors, progress, the machine, checksums, worker processes,
model files.
"""

__version__ = "0.1.0"

"""What knows nothing of documents: errors, progress, the machine, checksums, worker processes, model files."""

"""Text in, a corpus out: documents from installed documentation, local files or a hub, made into
splits.
"""

"""Where text comes from: installed documentation, local files, or a hub.

The documents are measured, freed of copies, and made into the splits of a corpus.
"""

"""Guided decoding: what may follow, as a mask over the vocabulary."""

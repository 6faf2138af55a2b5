"""Speculative decoding: guesses that one step verifies together."""

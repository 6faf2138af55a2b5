"""Prefix caching: blocks of the KV cache found again by what they hold."""

"""The engine's own version."""

from stage2.chunking import chunk as chunk

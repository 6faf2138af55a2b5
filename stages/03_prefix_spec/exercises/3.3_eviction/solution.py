"""The engine's own version."""

from stage3.prefix.cached_pool import CachedBlockPool as CachedBlockPool

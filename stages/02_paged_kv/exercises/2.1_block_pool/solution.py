"""The engine's own pool."""

from stage2.block_pool import BlockPool as BlockPool

"""The engine's own version."""

from stage3.prefix.block_hash import hash_block as hash_block

"""The engine's own version."""

from stage3.prefix.kv_manager import longest_hit as longest_hit

"""The engine's own manager."""

from stage2.kv_manager import PagedKVManager as PagedKVManager

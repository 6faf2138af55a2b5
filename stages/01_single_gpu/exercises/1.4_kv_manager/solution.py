"""The engine's own version."""

from stage1.kv_manager import OneBlockKVManager as OneBlockKVManager

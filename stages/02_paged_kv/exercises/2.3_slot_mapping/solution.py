"""The engine's own arithmetic."""

from stage2.slots import slot_mapping as slot_mapping

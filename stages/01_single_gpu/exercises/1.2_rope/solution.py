"""The engine's own rotation."""

from stage1.model.rope import apply_rope as apply_rope

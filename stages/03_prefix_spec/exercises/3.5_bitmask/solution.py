"""The engine's own packing."""

from stage3.grammar.masks import pack as pack

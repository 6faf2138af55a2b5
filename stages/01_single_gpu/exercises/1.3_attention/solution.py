"""The engine's own version."""

from stage1.attention import TorchAttention as TorchAttention

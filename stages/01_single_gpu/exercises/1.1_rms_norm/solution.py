"""The engine's own version."""

from stage1.model.ops import TorchOps as TorchOps

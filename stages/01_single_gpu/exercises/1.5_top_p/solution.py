"""The engine's own version."""

from stage1.sampler import TorchSampler as TorchSampler

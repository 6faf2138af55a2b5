"""The engine's own version."""

from stage1.scheduler import StaticScheduler as StaticScheduler

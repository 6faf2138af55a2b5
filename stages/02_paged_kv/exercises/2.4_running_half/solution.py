"""The engine's own version."""

from stage2.scheduler import ContinuousScheduler as ContinuousScheduler

"""The engine's own version."""

from stage2.preemption import Preemption as Preemption

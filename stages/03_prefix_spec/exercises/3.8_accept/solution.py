"""The engine's own rule."""

from stage3.spec.rejection import accept_matching as accept_matching

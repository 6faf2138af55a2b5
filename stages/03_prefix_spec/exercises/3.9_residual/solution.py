"""The engine's own draw."""

from stage3.spec.rejection import draw_residual as draw_residual

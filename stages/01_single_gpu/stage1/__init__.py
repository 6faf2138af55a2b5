"""Stage 1: a complete engine on one device, with static batching."""

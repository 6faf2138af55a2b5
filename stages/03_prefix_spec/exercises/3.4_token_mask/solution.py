"""The engine's own walk over the vocabulary."""

from stage3.grammar.token_fsm import allowed_tokens as allowed_tokens

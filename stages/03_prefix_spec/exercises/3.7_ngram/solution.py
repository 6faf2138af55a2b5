"""The engine's own search."""

from stage3.spec.ngram import propose as propose

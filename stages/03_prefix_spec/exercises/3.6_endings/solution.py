"""The engine's own matcher."""

from stage3.grammar.matcher import Matcher as Matcher

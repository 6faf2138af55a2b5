"""Whether a learner's file still offers what the engine calls.

Owns the comparison of names and signatures with the engine's own. Bodies are never looked at.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

from sixfold.exercises.catalog import Exercise

P = inspect.Parameter


def misfit(exercise: Exercise, reference: ModuleType, theirs: ModuleType) -> str | None:
    """What is missing from ``theirs`` or cannot be called as the engine does; ``None`` if all fits."""
    symbol = getattr(theirs, exercise.name, None)
    if symbol is None:
        return f"the file does not define `{exercise.name}`: keep the name that the stub has"
    own = getattr(reference, exercise.name)
    if exercise.kernel:
        if not hasattr(symbol, "fn"):
            return f"`{exercise.name}` is {_kind(symbol)}, where the engine needs a kernel: keep @triton.jit above it"
        return _call_misfit(exercise.name, own.fn, symbol.fn)
    if not inspect.isclass(own):
        return _call_misfit(exercise.name, own, symbol)
    if not inspect.isclass(symbol):
        return f"`{exercise.name}` is {_kind(symbol)}, where the engine needs a class"
    for name, member in inspect.getmembers_static(own):
        if name.startswith("_") and name != "__init__":
            continue  # how a class works inside is the learner's own affair
        if inspect.getattr_static(symbol, name, None) is None:
            return f"`{exercise.name}` has no `{name}`, which the engine needs"
        if inspect.isroutine(member) and name in vars(own):
            found = _call_misfit(f"{exercise.name}.{name}", _unbound(own, name), _unbound(symbol, name))
            if found:
                return found
    return None


def _call_misfit(name: str, own: Any, theirs: Any) -> str | None:
    if not callable(theirs):
        return f"`{name}` is {_kind(theirs)}, where the engine needs a function"
    try:
        wanted, given = inspect.signature(own), inspect.signature(theirs)
    except (TypeError, ValueError):
        return None  # something built in: its call will tell
    if _accepts(given, wanted):
        return None
    expected, found = _plain(wanted), _plain(given)
    return f"the engine calls `{name}{expected}`, but yours is `{name}{found}`: keep the first line as the stub has it"


def _accepts(given: inspect.Signature, wanted: inspect.Signature) -> bool:
    """Whether every way to pass the wanted parameters, by place or by name, works."""
    parameters = list(given.parameters.values())
    names = [p.name for p in parameters if p.kind is P.POSITIONAL_OR_KEYWORD]
    takes_all = {p.kind for p in parameters} >= {P.VAR_POSITIONAL, P.VAR_KEYWORD}
    needed = [p for p in wanted.parameters.values() if p.kind is P.POSITIONAL_OR_KEYWORD]
    fits = takes_all or names[: len(needed)] == [p.name for p in needed]
    for p in needed:
        if p.default is not P.empty and p.name in given.parameters and given.parameters[p.name].default is P.empty:
            return False
    extra = [
        p for p in parameters if p.name not in wanted.parameters and p.kind not in (P.VAR_POSITIONAL, P.VAR_KEYWORD)
    ]
    keyword_only = [p.name for p in wanted.parameters.values() if p.kind is P.KEYWORD_ONLY]
    takes_keywords = any(p.kind is P.VAR_KEYWORD for p in parameters)
    return (
        fits
        and all(p.default is not P.empty for p in extra)
        and all(name in given.parameters or takes_keywords for name in keyword_only)
    )


def _unbound(owner: type, name: str) -> Any:
    """A method as its callers see it: without ``self`` or ``cls``."""
    member = inspect.getattr_static(owner, name)
    if isinstance(member, (staticmethod, classmethod)):
        return getattr(owner, name)
    if not callable(member):
        return member
    return _WithoutSelf(member)


class _WithoutSelf:
    """A function whose signature lacks its first parameter."""

    def __init__(self, function: Any) -> None:
        signature = inspect.signature(function)
        self.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])

    def __call__(self) -> None:
        """Never called: only its signature is asked for."""


def _plain(signature: inspect.Signature) -> str:
    """``(x, weight, eps=1e-6)``: names and defaults, without types."""
    bare = [p.replace(annotation=P.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(bare))


def _kind(value: Any) -> str:
    return "a class" if inspect.isclass(value) else f"of type {type(value).__name__}"

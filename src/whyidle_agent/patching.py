"""Replace a function of torch by a wrapper, or leave it alone and say why.

NOTE [what a wrapper must be]
    A wrapper calls the original exactly once, with the arguments it was given, and hands on what
    comes out, exceptions included. Whatever of ours fails around that call is swallowed. It carries
    the original's name, so that it pickles by name, and its signature, for those who inspect it.

NOTE [frames that warnings do not count]
    `warnings.warn(..., stacklevel=2)` in the target names its caller, and shows a place only once. A
    frame of ours in between would be named instead. Python does not count frames of its own import
    system, which it knows by the words in their file name: our wrappers bear such a name.
"""

from __future__ import annotations

import functools
import inspect
import os
import types
import weakref

from whyidle_agent import writer

_MYPY = False
if _MYPY:
    from typing import Any, Callable

_MARK = "__whyidle_wrapped__"
_UNCOUNTED_FILE = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "importlib._bootstrap", "wrapper.py"
)


def is_wrapped(function: Any) -> bool:
    """Whether a function is a wrapper of ours."""
    return getattr(function, _MARK, None) is not None


def patch(
    point: str,
    owner: Any,
    name: str,
    parameters: tuple[str, ...],
    make_wrapper: Callable[[Callable[..., Any]], Callable[..., Any]],
    *,
    exactly: bool = False,
) -> bool:
    """Wrap `owner.name` in place.

    Args:
        point: Name of the patch point, for the note that says it was left alone.
        owner: Module or class that defines the function itself.
        name: Its attribute.
        parameters: Names that its first parameters must have.
        make_wrapper: Gives the wrapper of an original.
        exactly: Whether there may be no other parameters.

    Returns:
        Whether the wrapper is in place; if not, nothing was changed and a note says why.
    """
    try:
        original = vars(owner).get(name)
        if is_wrapped(original):
            return True
        reason = _surprise(original, parameters, exactly=exactly)
        if reason is None:
            setattr(owner, name, disguised(make_wrapper(original), original))
            return True
    except Exception as error:
        reason = repr(error)
    writer.note("patch-failed", "%s: %s" % (point, reason))
    return False


def disguised(wrapper: Callable[..., Any], original: Callable[..., Any]) -> Any:
    """Give a wrapper the name, the documentation and the signature of its original."""
    functools.update_wrapper(uncounted(wrapper), original)
    setattr(wrapper, _MARK, True)
    try:
        # inspect.getfullargspec does not look behind __wrapped__, but honours this.
        wrapper.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        pass
    return wrapper


def uncounted(function: Any) -> Any:
    """Have warnings skip the frames of a function. See NOTE [frames that warnings do not count]."""
    function.__code__ = function.__code__.replace(co_filename=_UNCOUNTED_FILE)
    return function


def _surprise(original: Any, parameters: tuple[str, ...], *, exactly: bool) -> str | None:
    if original is None:
        return "there is none"
    if not isinstance(original, types.FunctionType):
        return "is %r, no function" % type(original).__name__
    code = original.__code__
    found = code.co_varnames[: code.co_argcount]
    compared = found if exactly else found[: len(parameters)]
    if compared != parameters:
        return "takes (%s), expected (%s)" % (", ".join(found), ", ".join(parameters))
    return None


class IdentityMap:
    """Objects to values, by identity, held weakly: neither hash nor equality of theirs is called."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        """Begin empty."""
        self._entries: dict[int, tuple[Any, Any]] = {}

    def get(self, key: object) -> Any:
        """Value of an object; None if there is none."""
        entry = self._entries.get(id(key))
        return entry[1] if entry is not None and entry[0]() is key else None

    def set(self, key: object, value: object) -> None:
        """Set the value of an object.

        Raises:
            TypeError: the object cannot be referenced weakly.
        """
        number, entries = id(key), self._entries

        def forget(reference: Any) -> None:
            entry = entries.get(number)
            if entry is not None and entry[0] is reference:
                del entries[number]

        entries[number] = (weakref.ref(key, forget), value)

    def clear(self) -> None:
        """Forget all objects."""
        self._entries.clear()

    def values(self) -> list[Any]:
        """All values now."""
        return [value for _, value in list(self._entries.values())]

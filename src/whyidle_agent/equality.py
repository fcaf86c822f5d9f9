"""Say where two results differ, for `whyidle prove`. Runs in the training's own interpreter, after the training.

Types, shapes and dtypes have to be the same; whole numbers, text and truth values exactly the same; numbers with a
fraction within `atol + rtol * |expected|`. NaN equals NaN. Knows numpy and torch only if they are loaded.
"""

from __future__ import annotations

import math
import sys

_MYPY = False
if _MYPY:
    from typing import Any, Iterator

MAX_TEXT = 60
"""Characters of a value that are shown."""
MAX_DEPTH = 50
"""Containers inside each other that are looked through."""


_RANDOM_MODULES = ("random", "numpy", "torch")


class NotComparableError(Exception):
    """Nothing is known of how to compare such objects."""


class Tolerance:
    """How far apart two numbers with a fraction may be: `atol + rtol * |expected|`."""

    __slots__ = ("atol", "rtol")

    def __init__(self, rtol: float, atol: float) -> None:
        self.rtol = rtol
        self.atol = atol

    def allows(self, expected: Any, got: Any) -> bool:
        """Whether two numbers are equal enough."""
        if expected == got or (expected != expected and got != got):
            return True
        if not (math.isfinite(abs(expected)) and math.isfinite(abs(got))):
            return False
        return bool(abs(got - expected) <= self.atol + self.rtol * abs(expected))


def differences(
    expected: Any, got: Any, tolerance: Tolerance, path: str = "result"
) -> Iterator[str]:
    """Name the places where two values differ, in order.

    Args:
        expected: What should have come.
        got: What came.
        tolerance: For numbers with a fraction.
        path: How the value is called.

    Raises:
        NotComparableError: there is no telling whether two parts are equal.
    """
    return _differ(expected, got, tolerance, path, ())


def _differ(
    expected: Any, got: Any, tolerance: Tolerance, path: str, above: tuple[int, ...]
) -> Iterator[str]:
    if expected is got or id(expected) in above:
        return
    if len(above) > MAX_DEPTH:
        raise NotComparableError("%s: more than %d levels" % (path, MAX_DEPTH))
    if type(expected) is not type(got) and not _are_same_class(expected, got):
        yield "%s is %s, expected %s" % (path, _kind(got), _kind(expected))
        return
    above = (*above, id(expected))
    if _is_array(expected):
        yield from _differ_arrays(expected, got, tolerance, path, above)
    elif _is_tensor(expected):
        yield from _differ_tensors(expected, got, tolerance, path, above)
    elif isinstance(expected, (float, complex)) or _is_inexact_scalar(expected):
        if not tolerance.allows(expected, got):
            yield "%s is %s, expected %s" % (path, _show(got), _show(expected))
    elif isinstance(expected, dict):
        yield from _differ_mappings(expected, got, tolerance, path, above)
    elif isinstance(expected, (list, tuple)):
        yield from _differ_sequences(expected, got, tolerance, path, above)
    else:
        yield from _differ_others(expected, got, tolerance, path, above)


def _are_same_class(expected: Any, got: Any) -> bool:
    """Whether two classes are one that was imported under two names (a script, as itself and by its path)."""
    one, other = type(expected), type(got)
    files = [
        getattr(sys.modules.get(cls.__module__), "__file__", None) for cls in (one, other)
    ]
    return one.__qualname__ == other.__qualname__ and files[0] == files[1] is not None


# --- containers -------------------------------------------------------------------------------------


def _differ_mappings(
    expected: Any, got: Any, tolerance: Tolerance, path: str, above: tuple[int, ...]
) -> Iterator[str]:
    for key in expected:
        name = "%s[%s]" % (path, _show(key))
        if key not in got:
            yield "%s is missing" % name
        else:
            yield from _differ(expected[key], got[key], tolerance, name, above)
    for key in got:
        if key not in expected:
            yield "%s[%s] is too many" % (path, _show(key))


def _differ_sequences(
    expected: Any, got: Any, tolerance: Tolerance, path: str, above: tuple[int, ...]
) -> Iterator[str]:
    if len(expected) != len(got):
        yield "%s has %d items, expected %d" % (path, len(got), len(expected))
        return
    names = getattr(expected, "_fields", None)
    for number, (one, other) in enumerate(zip(expected, got)):
        name = ".%s" % names[number] if names else "[%d]" % number
        yield from _differ(one, other, tolerance, path + name, above)


def _differ_others(
    expected: Any, got: Any, tolerance: Tolerance, path: str, above: tuple[int, ...]
) -> Iterator[str]:
    states = _state_of(expected), _state_of(got)
    if states[0] is not None and states[1] is not None:
        yield from _differ_states(states[0], states[1], tolerance, path, above)
        return
    if not _has_equality(type(expected)):
        raise NotComparableError(
            "%s is %s, which has no equality" % (path, _kind(expected))
        )
    try:
        is_equal = bool(expected == got)
    except Exception as error:
        raise NotComparableError(
            "%s: %s: %s" % (path, type(error).__name__, error)
        ) from error
    if not is_equal:
        yield "%s is %s, expected %s" % (path, _show(got), _show(expected))


def _differ_states(
    expected: dict[str, Any],
    got: dict[str, Any],
    tolerance: Tolerance,
    path: str,
    above: tuple[int, ...],
) -> Iterator[str]:
    for name in expected:
        if name not in got:
            yield "%s.%s is missing" % (path, name)
        else:
            attribute = "%s.%s" % (path, name)
            yield from _differ(expected[name], got[name], tolerance, attribute, above)
    for name in got:
        if name not in expected:
            yield "%s.%s is too many" % (path, name)


def _state_of(value: Any) -> dict[str, Any] | None:
    """What an object consists of; None for one that is compared as a whole."""
    for read in (_random_state, _image_state, _attributes):
        state = read(value)
        if state is not None:
            return state
    return None


def _has_equality(cls: Any) -> bool:
    """Whether a class says itself when two of its objects are equal."""
    return any("__eq__" in vars(one) for one in cls.__mro__ if one is not object)


def _random_state(value: Any) -> dict[str, Any] | None:
    """State of a generator of random numbers: of Python, numpy or torch."""
    if type(value).__module__.partition(".")[0] not in _RANDOM_MODULES:
        return None
    bits = getattr(value, "bit_generator", None)
    for owner, name in ((bits, "state"), (value, "getstate"), (value, "get_state")):
        if owner is not None and hasattr(owner, name):
            state = getattr(owner, name)
            return {name: state() if callable(state) else state}
    return None


def _image_state(value: Any) -> dict[str, Any] | None:
    image_class = getattr(sys.modules.get("PIL.Image"), "Image", None)
    if image_class is None or not isinstance(value, image_class):
        return None
    return {"mode": value.mode, "size": value.size, "pixels": value.tobytes()}


def _attributes(value: Any) -> dict[str, Any] | None:
    """Attributes of an object of the person's; None for classes, functions, modules and what has none."""
    if isinstance(value, (type, int, str, bytes)) or (
        callable(value) and hasattr(value, "__name__")
    ):
        return None
    cls = type(value)
    if _has_equality(cls) and not hasattr(cls, "__dataclass_fields__"):
        return None
    slots: list[str] = []
    for owner in cls.__mro__:
        names = owner.__dict__.get("__slots__", ())
        slots.extend((names,) if isinstance(names, str) else names)
    if not slots and not hasattr(value, "__dict__"):
        return None
    found: dict[str, Any] = {
        name: getattr(value, name)
        for name in slots
        if name not in ("__dict__", "__weakref__") and hasattr(value, name)
    }
    found.update(getattr(value, "__dict__", ()))
    return found


# --- arrays -----------------------------------------------------------------------------------------


def _numpy() -> Any:
    return sys.modules.get("numpy")


def _is_array(value: Any) -> bool:
    numpy = _numpy()
    return numpy is not None and isinstance(value, numpy.ndarray)


def _is_inexact_scalar(value: Any) -> bool:
    numpy = _numpy()
    return numpy is not None and isinstance(value, numpy.inexact)


def _is_tensor(value: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _differ_tensors(
    expected: Any, got: Any, tolerance: Tolerance, path: str, above: tuple[int, ...]
) -> Iterator[str]:
    if expected.dtype != got.dtype:
        yield "%s has dtype %s, expected %s" % (path, got.dtype, expected.dtype)
        return
    pair = [_as_array(one) for one in (expected, got)]
    if pair[0] is None or pair[1] is None:
        raise NotComparableError("%s: a tensor of %s" % (path, expected.dtype))
    yield from _differ_arrays(pair[0], pair[1], tolerance, path, above)


def _as_array(tensor: Any) -> Any:
    """A tensor as an array; None where numpy has nothing for it."""
    torch: Any = sys.modules["torch"]
    plain = tensor.detach()
    try:
        plain = plain.to_dense() if plain.layout is not torch.strided else plain
        plain = plain.float() if plain.dtype is torch.bfloat16 else plain
        return plain.resolve_conj().resolve_neg().cpu().numpy()
    except (TypeError, RuntimeError, AttributeError):
        return None


def _differ_arrays(
    expected: Any, got: Any, tolerance: Tolerance, path: str, above: tuple[int, ...]
) -> Iterator[str]:
    if expected.shape != got.shape:
        yield "%s has shape %s, expected %s" % (
            path,
            tuple(got.shape),
            tuple(expected.shape),
        )
    elif expected.dtype != got.dtype:
        yield "%s has dtype %s, expected %s" % (path, got.dtype, expected.dtype)
    elif expected.dtype.names:
        for name in expected.dtype.names:
            field = "%s[%r]" % (path, name)
            yield from _differ_arrays(expected[name], got[name], tolerance, field, above)
    elif expected.dtype.hasobject:
        pairs = (expected.ravel().tolist(), got.ravel().tolist())
        yield from _differ(pairs[0], pairs[1], tolerance, path + ".ravel()", above)
    else:
        yield from _differ_numbers(expected, got, tolerance, path)


def _differ_numbers(
    expected: Any, got: Any, tolerance: Tolerance, path: str
) -> Iterator[str]:
    numpy = _numpy()
    is_inexact = expected.dtype.kind in "fc"
    with numpy.errstate(all="ignore"):
        unequal = expected != got
        if is_inexact or expected.dtype.kind in "mM":
            unequal &= ~((expected != expected) & (got != got))
        if is_inexact:
            unequal &= ~_are_close(expected, got, tolerance)
    count = int(unequal.sum())
    if not count:
        return
    place = tuple(int(one) for one in numpy.argwhere(unequal)[0]) if expected.ndim else ()
    where = "[%s]" % ", ".join(map(str, place)) if place else ""
    more = ""
    if expected.size > 1:
        more = " (%d of %d elements differ%s)" % (
            count,
            expected.size,
            _largest(expected[unequal], got[unequal]),
        )
    values = str(got[place]), str(expected[place])
    yield "%s%s is %s, expected %s%s" % (path, where, *values, more)


def _are_close(expected: Any, got: Any, tolerance: Tolerance) -> Any:
    numpy = _numpy()
    wide = numpy.complex128 if expected.dtype.kind == "c" else numpy.float64
    one, other = expected.astype(wide), got.astype(wide)
    bound = tolerance.atol + tolerance.rtol * numpy.abs(one)
    return numpy.isfinite(one) & numpy.isfinite(other) & (numpy.abs(other - one) <= bound)


def _largest(expected: Any, got: Any) -> str:
    numpy = _numpy()
    if expected.dtype.kind not in "iufc":
        return ""
    wide = numpy.complex128 if expected.dtype.kind == "c" else numpy.float64
    with numpy.errstate(all="ignore"):
        apart = numpy.abs(got.astype(wide) - expected.astype(wide))
    finite = apart[numpy.isfinite(apart)]
    return ", by %.3g at most" % finite.max() if finite.size else ""


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    return "%s %s" % ("an" if name[:1].lower() in "aeiou" else "a", name)


def _show(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        return _kind(value)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"

"""An element loop → what to write in its place, in numpy's terms and with the loop's own names.

Each step is a sentence with code from the loop turned around: index variables become slices, tests become masks,
`math` becomes numpy, element assignment becomes one assignment. It is advice, not a translation: `whyidle prove` tells
whether what a person then wrote gives the same.
"""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING

from whyidle.analysis.loops import (
    flat_subscript,
    is_math,
    name_of,
    reads_any,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.loops import ElementLoop, Level

MAX_STEPS = 6
"""More steps are a course, not advice."""
MAX_CODE = 64
"""Longer code is not quoted."""
NUMPY_OF_CALL = {
    "int": "x.astype(int)",
    "float": "x.astype(float)",
    "abs": "np.abs",
    "min": "np.minimum",
    "max": "np.maximum",
    "round": "np.round",
    "pow": "np.power",
}


def describe_loop(loop: ElementLoop) -> str:
    """Say what the loop does, in half a sentence."""
    lines = (
        f"line {loop.first_line}"
        if loop.first_line == loop.last_line
        else f"lines {loop.first_line} to {loop.last_line}"
    )
    depth = len(loop.levels)
    nested = f", {depth} loops deep" if depth > 1 else ""
    source = loop.levels[0].source
    over = _quote(_counted_over(source)) if source is not None else None
    what = f"work through {over} element by element" if over else "work element by element"
    verb = what if loop.first_line != loop.last_line else what.replace("work", "works", 1)
    return f"{lines} {verb} in Python{nested}"


def _counted_over(source: ast.expr) -> ast.expr:
    """`range(len(points))` runs over `points`."""
    match source:
        case ast.Call(
            func=ast.Name(id="range"),
            args=[ast.Call(func=ast.Name(id="len"), args=[counted])],
        ):
            return counted
        case ast.Call(func=ast.Name(id="enumerate"), args=[counted, *_]):
            return counted
        case _:
            return source


def advise_steps(loop: ElementLoop) -> list[str]:
    """Give the steps that replace the loop by array operations."""
    if loop.carried:
        return [_say_carried(loop)]
    parsed = list(_parses(loop))
    if parsed:
        return parsed
    steps = [
        *_whole_sources(loop),
        *_grids(loop),
        *_short_loops(loop),
        *_masks(loop),
        *_nearest(loop),
        *_calls(loop),
        *_stores(loop),
        *_reductions(loop),
    ]
    return steps[:MAX_STEPS]


def _say_carried(loop: ElementLoop) -> str:
    names = " and ".join(f"`{name}`" for name in loop.carried)
    return (
        f"each pass needs {names} of the pass before, which array operations cannot do: compile the loop with "
        "`@numba.njit(cache=True)` (call it once before the workers start), or use a filter such as "
        "`scipy.signal.lfilter` where it is one"
    )


def _quote(node: ast.AST) -> str | None:
    text = ast.unparse(node)
    return f"`{text}`" if len(text) <= MAX_CODE and "\n" not in text else None


def _whole_sources(loop: ElementLoop) -> Iterator[str]:
    """Take all elements at once: `points[:, 0]` for `points[i, 0]`, `x, y = np.asarray(points).T`."""
    first = loop.levels[0]
    if _is_counted(first):
        wholes = list(dict.fromkeys(_sliced(loop, first.names[0])))
        pairs = ", ".join(f"`{whole}` for `{part}`" for part, whole in wholes[:2])
        if not pairs and len(_ranges(loop)) == 1:
            count = ast.unparse(first.range_arguments[0])
            pairs = f"`{first.names[0]} = np.arange({count})`"
        if pairs:
            yield f"take all at once: {pairs}"
        return
    if first.source is None or first.range_arguments or first.is_short:
        return
    special = _from_call(first.source, first.names)
    if special:
        yield f"take all at once: {special}"
    elif (source := _quote(first.source)) and not _has_patch(loop):
        whole = _columns(first.names, source.strip("`"))
        yield f"take all at once: `{whole}`"


def _from_call(source: ast.expr, names: tuple[str, ...]) -> str | None:
    """Arrays in place of `zip`, `enumerate`, the rows of a data frame, and `np.ndindex`; None for anything else."""
    if not isinstance(source, ast.Call) or not names:
        return None
    arguments = [ast.unparse(one) for one in source.args]
    match name_of(source.func), source.func:
        case "zip", _ if len(arguments) == len(names):
            arrays = ", ".join(f"np.asarray({one})" for one in arguments)
            return f"`{', '.join(names)} = {arrays}`"
        case "enumerate", _ if arguments and len(names) > 1:
            counted = f"`{names[0]} = np.arange(len({arguments[0]}))`"
            return f"{counted}, `{_columns(names[1:], arguments[0])}`"
        case "iterrows" | "itertuples", ast.Attribute(value=frame):
            return f"columns, `{ast.unparse(frame)}['name'].to_numpy()`, in place of rows"
        case "ndindex", _ if arguments:
            return f"`{', '.join(names)} = np.indices({', '.join(arguments)})`"
        case _:
            return None


def _columns(names: tuple[str, ...], source: str) -> str:
    """`x, y = np.asarray(points).T`; one name is the array itself."""
    turned = ".T" if len(names) > 1 else ""
    return f"{', '.join(names)} = np.asarray({source}){turned}"


def _is_counted(level: Level) -> bool:
    """`for i in range(len(x))`, `for i in range(n)`."""
    return len(level.names) == 1 and len(level.range_arguments) == 1 and not level.is_short


def _sliced(loop: ElementLoop, index: str) -> Iterator[tuple[str, str]]:
    """Elements that are read at an index, with the index replaced by `:`; several names take their columns."""
    for node in loop.nodes:
        match node:
            case ast.Assign(targets=[ast.Tuple() as target], value=value) if reads_any(
                value, [index]
            ):
                whole = ast.unparse(_Slice(index).visit(copy.deepcopy(value)))
                names = ", ".join(ast.unparse(one) for one in target.elts)
                yield f"{names} = {ast.unparse(value)}", f"{names} = ({whole}).T"
                return
            case _:
                pass
    for node in loop.nodes:
        if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
            continue
        _, indices = flat_subscript(node)
        if any(isinstance(one, ast.Name) and one.id == index for one in indices):
            whole = ast.unparse(_Slice(index).visit(copy.deepcopy(node)))
            yield ast.unparse(node), whole


class _Slice(ast.NodeTransformer):
    """Replaces an index by a whole slice."""

    def __init__(self, name: str) -> None:
        self.name = name

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Turn one subscript around."""
        self.generic_visit(node)
        is_tuple = isinstance(node.slice, ast.Tuple)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        turned: list[ast.expr] = [
            ast.Slice() if isinstance(one, ast.Name) and one.id == self.name else one
            for one in parts
        ]
        index = ast.Tuple(elts=turned, ctx=ast.Load()) if is_tuple else turned[0]
        return ast.Subscript(value=node.value, slice=index, ctx=node.ctx)


def _ranges(loop: ElementLoop) -> list[Level]:
    return [one for one in loop.levels if one.range_arguments and not one.is_short]


def _has_patch(loop: ElementLoop) -> bool:
    """An inner range begins or ends at the outer loop's element: a patch around each point."""
    outer = loop.levels[0]
    return any(
        reads_any(argument, outer.names)
        for level in _ranges(loop)
        if level is not outer
        for argument in level.range_arguments
    )


def _grids(loop: ElementLoop) -> Iterator[str]:
    """Nested ranges are a grid: rows as a column, columns as a row."""
    ranges = [one for one in _ranges(loop) if len(one.names) == 1]
    if len(ranges) < 2:
        return
    rows, columns = ranges[-2:]
    spans = []
    for level, tail in ((rows, "[:, None]"), (columns, "")):
        arguments = ", ".join(ast.unparse(one) for one in level.range_arguments)
        spans.append(f"`{level.names[0]} = np.arange({arguments}){tail}`")
    if _has_patch(loop):
        yield f"keep the loop over the points, and make each patch at once: {spans[0]}, {spans[1]}"
    else:
        yield f"make the grid at once: {spans[0]}, {spans[1]}"
    if any(_is_exponential(node) for node in loop.nodes):
        yield (
            "a Gaussian is separable: one `np.exp` for the rows, one for the columns, and their product "
            "`e_rows[:, None] * e_columns`"
        )


def _is_exponential(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and name_of(node.func) == "exp"


def _short_loops(loop: ElementLoop) -> Iterator[str]:
    short = [one for one in loop.levels[1:] if one.is_short]
    if short:
        names = " and ".join(f"`{name}`" for one in short for name in one.names)
        yield (
            f"turn the nest inside out: keep the short loops over {names} outside, each pass then handles all "
            "elements in one operation"
        )


def _masks(loop: ElementLoop) -> Iterator[str]:
    """`if not (...): continue` becomes a boolean index."""
    for node in loop.nodes:
        if not isinstance(node, ast.If) or not _skips(node):
            continue
        test: ast.expr = node.test
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            mask, word = _as_mask(test.operand), "keep"
        else:
            mask, word = _as_mask(test), "skip"
        if mask is not None and len(mask) <= MAX_CODE:
            used = "keep" if word == "keep" else "~skip"
            yield f"test all at once: `{word} = {mask}`, then index with `[{used}]`"
            return


def _skips(node: ast.If) -> bool:
    return (
        len(node.body) == 1 and isinstance(node.body[0], ast.Continue) and not node.orelse
    )


def _as_mask(test: ast.expr) -> str | None:
    """Write a test for arrays: `(0 <= x) & (x < n)` for `0 <= x < n`; None for what has no such form."""
    if isinstance(test, ast.BoolOp):
        parts = [_as_mask(one) for one in test.values]
        sign = " & " if isinstance(test.op, ast.And) else " | "
        if any(one is None for one in parts):
            return None
        return sign.join(one if one.startswith("(") else f"({one})" for one in parts if one)
    if isinstance(test, ast.Compare):
        operands = [test.left, *test.comparators]
        pieces = []
        for at, operator in enumerate(test.ops):
            pair = ast.Compare(
                left=operands[at], ops=[operator], comparators=[operands[at + 1]]
            )
            pieces.append(f"({ast.unparse(pair)})")
        return " & ".join(pieces)
    return None


def _nearest(loop: ElementLoop) -> Iterator[str]:
    """`min(points, key=...)` for each pixel is a distance to all points, and its smallest."""
    for node in loop.nodes:
        if not isinstance(node, ast.Call) or name_of(node.func) not in ("min", "max"):
            continue
        if any(one.arg == "key" for one in node.keywords) and node.args:
            source = ast.unparse(node.args[0])
            best = "argmin" if name_of(node.func) == "min" else "argmax"
            yield (
                f"compute the key for all of `{source}` along one more axis, and choose with "
                f"`{source}[key.{best}(axis=0)]`, with `{source}` as an array"
            )
            return


def _calls(loop: ElementLoop) -> Iterator[str]:
    """Scalar functions with their twins for arrays."""
    twins: dict[str, str] = {}
    for node in loop.nodes:
        if not isinstance(node, ast.Call):
            continue
        name = name_of(node.func)
        if name is None or any(one.arg == "key" for one in node.keywords):
            continue
        if is_math(node.func):
            twins[f"math.{name}"] = f"np.{name}"
        elif name in NUMPY_OF_CALL and any(
            reads_any(one, loop.tainted) for one in node.args
        ):
            twins[f"{name}(x)" if name in ("int", "float") else name] = NUMPY_OF_CALL[name]
    if _has_patch(loop):  # min and max are then the ends of the patch
        twins = {old: new for old, new in twins.items() if old not in ("min", "max")}
    if twins:
        yield ", ".join(f"`{new}` for `{old}`" for old, new in list(twins.items())[:4])


def _stores(loop: ElementLoop) -> Iterator[str]:
    """Element assignment becomes one assignment, or a ufunc's `.at` where several elements meet in one place."""
    said: dict[str, str] = {}
    for node in loop.nodes:
        match node:
            case ast.AugAssign(target=ast.Subscript() as target, op=ast.Add(), value=value):
                added = _at("add", target, value, "add up")
                counts = isinstance(value, ast.Constant) and value.value == 1
                faster = ", or faster with `np.bincount` of a flat index" if counts else ""
                said[_base(target)] = f"{added}{faster}"
            case ast.Assign(targets=[ast.Subscript() as target], value=value) if _touches(
                loop, target
            ):
                kept = _kept_extreme(loop, node, target, value)
                if kept:
                    said[_base(target)] = kept
                else:
                    whole = f"`{ast.unparse(target)} = {ast.unparse(value)}`"
                    if len(whole) <= MAX_CODE:
                        said.setdefault(_base(target), f"{whole} then fills all at once")
            case _:
                pass
    yield from list(said.values())[-2:]


def _base(target: ast.Subscript) -> str:
    return ast.unparse(flat_subscript(target)[0])


def _touches(loop: ElementLoop, target: ast.Subscript) -> bool:
    return any(reads_any(one, loop.tainted) for one in flat_subscript(target)[1])


def _index_text(target: ast.Subscript) -> str:
    parts = [ast.unparse(one) for one in flat_subscript(target)[1]]
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def _at(ufunc: str, target: ast.Subscript, value: ast.expr, words: str) -> str:
    call = f"np.{ufunc}.at({_base(target)}, {_index_text(target)}, {ast.unparse(value)})"
    return f"{words} with `{call}`"


def _kept_extreme(
    loop: ElementLoop, store: ast.Assign, target: ast.Subscript, value: ast.expr
) -> str | None:
    """`a[i] = max(a[i], v)`, and `if a[i] < v: a[i] = v`."""
    own = ast.unparse(target)
    if isinstance(value, ast.Call) and name_of(value.func) in ("max", "min"):
        others = [one for one in value.args if ast.unparse(one) != own]
        if len(others) == 1 and len(value.args) == 2:
            largest = name_of(value.func) == "max"
            return _extreme(target, others[0], largest=largest)
    for node in loop.nodes:
        if isinstance(node, ast.If) and store in node.body:
            compared = [one for one in ast.walk(node.test) if isinstance(one, ast.Compare)]
            for one in compared:
                if ast.unparse(one.left) == own and len(one.ops) == 1:
                    return _extreme(target, value, largest=isinstance(one.ops[0], ast.Lt))
    return None


def _extreme(target: ast.Subscript, value: ast.expr, *, largest: bool) -> str:
    words = f"keep the {'larger' if largest else 'smaller'} value"
    return _at("maximum" if largest else "minimum", target, value, words)


def _reductions(loop: ElementLoop) -> Iterator[str]:
    """Sums, and lists that are filled one by one."""
    for node in loop.nodes:
        match node:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value) if (
                reads_any(value, loop.tainted)
            ):
                yield f"`{name} += ({ast.unparse(value)}).sum()` once, for the array"
                return
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append")):
                yield f"`{name}` is then the array itself, without `append`"
                return
            case _:
                pass


def _parses(loop: ElementLoop) -> Iterator[str]:
    """`[float(x) for x in text.split()]`, and nothing else."""
    match loop.nodes[0]:
        case ast.ListComp(
            elt=ast.Call(func=ast.Name(id="int" | "float" as kind), args=[ast.Name()]),
            generators=[one],
        ):
            yield f"`np.asarray({ast.unparse(one.iter)}, dtype={kind})` parses all at once"
        case _:
            return

"""Source text → the Python loop around a hot line that works element by element.

Nothing is run and nothing is read: the text is handed in. A loop counts when its own variable, or what is made of
it, is computed with: `for row in range(height)`, `for x, y in points`, `for i in range(len(boxes))`. A loop that only
hands whole things to other functions (files to a reader, arrays to a library) is left alone.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_SHORT_PASSES = 16
"""A loop over so few constants (the neighbours of a cell) is kept: each pass is then one operation on whole arrays."""
SCALAR_CALLS = frozenset(("int", "float", "abs", "min", "max", "round", "pow", "divmod"))
"""Functions of Python that compute with one number, and have a twin for arrays."""
MAPPING_CALLS = frozenset(("items", "keys", "values"))
"""A loop over these goes through a mapping, not an array."""
REDUCING_OPERATORS = (ast.Add, ast.Mult, ast.BitOr, ast.BitAnd)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Loop = ast.For | ast.AsyncFor | ast.While | Comprehension


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One loop of a nest; a comprehension with two `for` has two."""

    names: tuple[str, ...]
    """What it binds."""
    source: ast.expr | None
    """What it runs over; None for `while`."""

    @property
    def range_arguments(self) -> list[ast.expr]:
        """Arguments of `range(...)`; empty where it runs over something else."""
        if isinstance(self.source, ast.Call) and name_of(self.source.func) == "range":
            return self.source.args
        return []

    @property
    def is_short(self) -> bool:
        """It runs over a few constants that stand in the text."""
        listed = self.source.elts if isinstance(self.source, ast.Tuple | ast.List) else []
        values = listed or self.range_arguments
        return 0 < len(values) <= MAX_SHORT_PASSES and all(map(_is_small, values))


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementLoop:
    """A loop, or nest of loops, that works element by element."""

    function: str
    """Function that it stands in; not the hot one where that is called for each element."""
    first_line: int
    last_line: int
    levels: tuple[Level, ...]
    """Outermost first."""
    nodes: tuple[ast.AST, ...]
    """The loop and all that is in it, in the order of the text."""
    tainted: frozenset[str]
    """Names that hold an element, or what was computed from one."""
    carried: tuple[str, ...]
    """Names whose value in one pass is computed from the pass before: no array operation does that."""


def find_element_loop(source: str, line: int, function: str | None) -> ElementLoop | None:
    r"""Find the outermost loop around a line that works element by element.

    Args:
        source: Text of the file.
        line: The hot line, from 1.
        function: Function that holds it, if known.

    Returns:
        None where there is none, and where the text is no Python.

    >>> text = "def shade(image):\n    for y in range(9):\n        image[y] = 2 * y\n"
    >>> find_element_loop(text, 3, "shade").levels[0].names
    ('y',)
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    holder = _innermost_function(tree, line, function)
    if holder is None:
        return None
    around = [
        node for node in ast.walk(holder) if isinstance(node, Loop) and _holds(node, line)
    ]
    for node in sorted(around, key=lambda one: (one.lineno, one.col_offset)):
        found = _describe(node, holder.name)
        if found is not None:
            return found
    return _calling_loop(tree, holder) if _is_scalar(holder) else None


def name_of(node: ast.AST) -> str | None:
    """Give the last name of `a`, `a.b` or `a.b.c`."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def is_math(node: ast.AST) -> bool:
    """Tell whether a function is one of `math`."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("math", "cmath")
    )


def flat_subscript(node: ast.Subscript) -> tuple[ast.expr, list[ast.expr]]:
    """Give what is indexed and all its indices: `a[i][j]` and `a[i, j]` are the same."""
    inner: list[ast.expr] = []
    value: ast.expr = node
    while isinstance(value, ast.Subscript):
        index = value.slice
        inner = (list(index.elts) if isinstance(index, ast.Tuple) else [index]) + inner
        value = value.value
    return value, inner


def reads_any(node: ast.AST, names: Iterable[str]) -> bool:
    """Tell whether an expression reads one of these names."""
    wanted = set(names)
    return any(isinstance(one, ast.Name) and one.id in wanted for one in ast.walk(node))


def _is_small(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    if not isinstance(inner, ast.Constant) or not isinstance(inner.value, int | float):
        return False
    return abs(inner.value) <= MAX_SHORT_PASSES


def _holds(node: ast.expr | ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _innermost_function(tree: ast.Module, line: int, name: str | None) -> Function | None:
    holders = [
        node for node in ast.walk(tree) if isinstance(node, Function) and _holds(node, line)
    ]
    named = [node for node in holders if node.name == name]
    return max(named or holders, key=lambda node: node.lineno, default=None)


def _is_scalar(function: Function) -> bool:
    """Tell whether a function computes with numbers alone: arithmetic, and no calls but those of Python and math."""
    calls = [one for one in ast.walk(function) if isinstance(one, ast.Call)]
    known = all(is_math(one.func) or name_of(one.func) in SCALAR_CALLS for one in calls)
    return known and any(isinstance(one, ast.BinOp) for one in ast.walk(function))


def _calling_loop(tree: ast.Module, called: Function) -> ElementLoop | None:
    """Find the loop that calls a function for each element, the outermost in the file's order."""
    for holder in ast.walk(tree):
        if not isinstance(holder, Function) or holder is called:
            continue
        for node in _in_order(holder):
            found = (
                _describe(node, holder.name, called.name)
                if isinstance(node, Loop)
                else None
            )
            if found is not None:
                return found
    return None


def _calls_with(node: ast.AST, function: str, tainted: set[str]) -> bool:
    return (
        isinstance(node, ast.Call)
        and name_of(node.func) == function
        and any(_is_element(one, tainted) for one in node.args)
    )


def _describe(node: Loop, function: str, called: str | None = None) -> ElementLoop | None:
    """Describe a loop with those inside it; None when it does not work element by element.

    Args:
        node: The loop.
        function: Name of the function it stands in.
        called: What has to be called with an element; None: it has to compute with one itself.
    """
    own = next(_levels(node))
    if isinstance(own.source, ast.Call) and name_of(own.source.func) in MAPPING_CALLS:
        return None
    nodes = tuple(_in_order(node))
    tainted = _spread(set(own.names), nodes)
    if called is not None:
        if not any(_calls_with(one, called, tainted) for one in nodes):
            return None
    elif not any(_computes_with(one, tainted) for one in nodes):
        return None
    levels = tuple(
        level for one in nodes if isinstance(one, Loop) for level in _levels(one)
    )
    all_names = {name for level in levels for name in level.names}
    return ElementLoop(
        function=function,
        first_line=node.lineno,
        last_line=node.end_lineno or node.lineno,
        levels=levels,
        nodes=nodes,
        tainted=frozenset(_spread(all_names, nodes)),
        carried=tuple(sorted({*_carried_names(node, all_names), *_carried_arrays(nodes)})),
    )


def _levels(node: Loop) -> Iterator[Level]:
    if isinstance(node, ast.While):
        assigned = {
            one.id
            for one in ast.walk(node)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
        }
        counters = sorted(name for name in assigned if reads_any(node.test, [name]))
        yield Level(names=tuple(counters), source=None)
    elif isinstance(node, ast.For | ast.AsyncFor):
        yield Level(names=tuple(_bound(node.target)), source=node.iter)
    else:
        for one in node.generators:
            yield Level(names=tuple(_bound(one.target)), source=one.iter)


def _bound(target: ast.expr) -> Iterator[str]:
    for one in ast.walk(target):
        if isinstance(one, ast.Name):
            yield one.id


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Walk depth first, in the order of the text."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _spread(names: set[str], nodes: Iterable[ast.AST]) -> set[str]:
    """Add the names that are computed from elements, directly or over other names."""
    tainted = set(names)
    listed = list(nodes)
    while True:
        before = len(tainted)
        for node in listed:
            if isinstance(node, ast.Assign) and _is_element(node.value, tainted):
                for target in node.targets:
                    if isinstance(target, ast.Name | ast.Tuple | ast.List):
                        tainted.update(_stored(target))
            elif isinstance(node, ast.For) and _is_element(node.iter, tainted):
                tainted.update(_bound(node.target))
        if len(tainted) == before:
            return tainted


def _stored(target: ast.expr) -> Iterator[str]:
    for one in ast.walk(target):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            yield one.id


def _is_element(node: ast.expr, tainted: set[str]) -> bool:
    """Tell whether an expression is an element or computed from one by arithmetic; other calls break the chain."""
    match node:
        case ast.Name(id=name):
            return name in tainted
        case ast.Subscript(value=value, slice=index):
            return _is_element(value, tainted) or _is_element(index, tainted)
        case ast.BinOp(left=left, right=right):
            return _is_element(left, tainted) or _is_element(right, tainted)
        case ast.UnaryOp(operand=operand):
            return _is_element(operand, tainted)
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            return any(_is_element(one, tainted) for one in elts)
        case ast.IfExp(body=body, orelse=orelse):
            return _is_element(body, tainted) or _is_element(orelse, tainted)
        case ast.Call(func=func, args=args):
            is_scalar = is_math(func) or name_of(func) in SCALAR_CALLS
            return is_scalar and any(_is_element(one, tainted) for one in args)
        case _:
            return False


def _computes_with(node: ast.AST, tainted: set[str]) -> bool:
    """Tell whether a piece of code does arithmetic on an element, or fills an array at one.

    `folder / name` joins paths as often as it divides, and `text + "x"` joins texts: neither is proof.
    """
    match node:
        case ast.BinOp(op=ast.Div()):
            return False
        case ast.BinOp():
            is_text = any(map(_is_text, ast.walk(node)))
            return not is_text and _is_element(node, tainted)
        case ast.AugAssign(target=target, value=value):
            return not _is_text(value) and (
                _is_element(value, tainted) or _is_indexed(target, tainted)
            )
        case ast.Assign(targets=[ast.Subscript() as target], value=value):
            is_made = isinstance(value, ast.Constant) or _is_element(value, tainted)
            return is_made and _is_indexed(target, tainted)
        case ast.Call(func=func, args=args) if (
            is_math(func) or name_of(func) in SCALAR_CALLS
        ):
            return any(_is_element(one, tainted) for one in args)
        case _:
            return False


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _is_indexed(target: ast.expr, tainted: set[str]) -> bool:
    return isinstance(target, ast.Subscript) and any(
        _is_element(one, tainted) for one in flat_subscript(target)[1]
    )


def _carried_names(node: Loop, bound: set[str]) -> Iterator[str]:
    """Names that a pass reads before it writes them, sums and extremes aside: those have a reduction."""
    if not isinstance(node, ast.For | ast.AsyncFor | ast.While):
        return
    written: set[str] = set()
    read_first: set[str] = set()
    for is_write, name in _accesses(node.body):
        if is_write:
            written.add(name)
        elif name not in written:
            read_first.add(name)
    yield from (read_first & written) - bound


def _accesses(statements: Iterable[ast.stmt]) -> Iterator[tuple[bool, str]]:
    """Reads and writes of plain names in the order they happen; (is a write, name)."""
    for statement in statements:
        match statement:
            case ast.AugAssign(target=ast.Name(), value=value):
                yield from _reads(value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _reduces(
                value, name
            ):
                yield from (one for one in _reads(value) if one[1] != name)
            case ast.If(test=test, body=body, orelse=orelse):
                kept = _extremes(test, body)
                yield from (one for one in _reads(test) if one[1] not in kept)
                yield from _accesses(body)
                yield from _accesses(orelse)
            case ast.For(target=target, iter=source, body=body, orelse=orelse):
                yield from _reads(source)
                yield from ((True, name) for name in _stored(target))
                yield from _accesses(body)
                yield from _accesses(orelse)
            case ast.While(test=test, body=body, orelse=orelse):
                yield from _reads(test)
                yield from _accesses(body)
                yield from _accesses(orelse)
            case ast.With(items=items, body=body):
                for item in items:
                    yield from _reads(item.context_expr)
                yield from _accesses(body)
            case _:
                yield from _reads(statement)
                yield from ((True, name) for name in _stored_in(statement))


def _reads(node: ast.AST) -> Iterator[tuple[bool, str]]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load):
            yield False, one.id


def _stored_in(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            yield one.id


def _reduces(value: ast.expr, name: str) -> bool:
    """`total = total + x` and `best = max(best, x)` have a reduction; `y = 0.9 * y + x` has none."""
    parts: list[ast.expr] = []
    if isinstance(value, ast.BinOp) and isinstance(value.op, REDUCING_OPERATORS):
        parts = [value.left, value.right]
    elif isinstance(value, ast.Call) and name_of(value.func) in ("max", "min"):
        parts = value.args
    own = [one for one in parts if isinstance(one, ast.Name) and one.id == name]
    others = [one for one in parts if one not in own]
    return len(own) == 1 and not any(reads_any(one, [name]) for one in others)


def _extremes(test: ast.expr, body: list[ast.stmt]) -> set[str]:
    """Names of `if x < best: best = x`, which a minimum or its index replaces."""
    if not isinstance(test, ast.Compare):
        return set()
    assigned = {
        name
        for one in body
        if isinstance(one, ast.Assign)
        for target in one.targets
        for name in _stored(target)
    }
    compared = (test.left, *test.comparators)
    return {one.id for one in compared if isinstance(one, ast.Name)} & assigned


def _carried_arrays(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Arrays of which one element is computed from another: `row[i] = row[i - 1] + 1`."""
    stored: dict[str, set[str]] = {}
    loaded: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Subscript):
            base, indices = flat_subscript(node)
            kind = stored if isinstance(node.ctx, ast.Store) else loaded
            text = ",".join(ast.unparse(one) for one in indices)
            kind.setdefault(ast.unparse(base), set()).add(text)
    for name, places in stored.items():
        # `a[i]` inside `a[i][j]` is a part of the same access.
        others = [
            one
            for one in loaded.get(name, set()) - places
            if not any(whole.startswith(f"{one},") for whole in places)
        ]
        if others:
            yield name

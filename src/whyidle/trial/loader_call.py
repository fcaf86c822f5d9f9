"""Set arguments of the DataLoader call in a line of a source text, so that all else stays as it was written.

Only what is certain is changed: a value that stands there as a literal, or an argument that is not there and cannot
come from anywhere else. Everything else is given back as something to do by hand, with what the value comes from.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider, QualifiedNameProvider

from whyidle.errors import UsageError
from whyidle.model.remedies import LOADER_ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whyidle.model.remedies import SettingValue

TORCH_NAMES = frozenset(
    f"torch.utils.data.{name}" for name in ("DataLoader", "dataloader.DataLoader")
)
POSITIONS = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
)
"""Arguments of torch's DataLoader that may be given by position, since torch 1.7."""
NEED_WORKERS = ("prefetch_factor", "persistent_workers")
"""Arguments that torch refuses without workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """An argument that is left for a person to set."""

    name: str
    value: SettingValue
    reason: str
    """Why it was left: where its value comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """A source text with arguments set."""

    source: bytes
    """The whole text; the same as before when nothing could be set."""
    changes: tuple[str, ...]
    """What was set, `num_workers=8 (was 2)`."""
    by_hand: tuple[ByHand, ...]


def set_arguments(
    source: bytes, line: int, values: Mapping[str, SettingValue], *, had_workers: bool
) -> Edited:
    """Set arguments of the call that builds a loader.

    Args:
        source: The Python file.
        line: Where the loader was built in the run, from 1.
        values: Argument to value.
        had_workers: Whether the loader had workers in the run: some arguments need them.

    Raises:
        UsageError: `loader-call-not-found`: the text is no Python, or the line has no such call, or several.
    """
    try:
        wrapper = MetadataWrapper(cst.parse_module(source))
    except (cst.ParserSyntaxError, UnicodeError, RecursionError) as error:
        raise _not_found(
            line, f"the file cannot be parsed ({type(error).__name__})"
        ) from error
    finder = _Finder(line)
    wrapper.visit(finder)
    found = finder.choose(source)
    editor = _Editor(found.call, is_torch=found.is_torch, origins=finder.origins)
    for name in LOADER_ARGUMENTS:
        if name in values:
            needs = (
                name in NEED_WORKERS and not had_workers and editor.leaves("num_workers")
            )
            editor.set(name, values[name], needs_workers=needs)
    changed = cst.ensure_type(
        wrapper.module.deep_replace(found.call, editor.call), cst.Module
    )
    return Edited(
        source=changed.bytes if editor.changes else source,
        changes=tuple(editor.changes),
        by_hand=tuple(editor.by_hand),
    )


def _not_found(line: int, reason: str) -> UsageError:
    return UsageError(
        f"line {line} cannot be edited: {reason}; expected one call of DataLoader there",
        slug="loader-call-not-found",
        hint="Set the values by hand where the loader is made.",
    )


# --- finding --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Candidate:
    call: cst.Call
    start_line: int
    is_torch: bool
    """The call is known to be torch's own DataLoader: any of its arguments may be added."""


class _Finder(cst.CSTVisitor):
    """Collects calls that span a line and build a loader, and where names of the file get their values."""

    METADATA_DEPENDENCIES = (PositionProvider, QualifiedNameProvider)

    def __init__(self, line: int) -> None:
        super().__init__()
        self.origins = _Origins()
        self._line = line
        self._candidates: list[_Candidate] = []
        self._loader_classes: set[str] = set()
        self._has_star_import = False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:  # noqa: N802  (libcst names it)
        """Note `from torch.utils.data import *`, which hides where a name comes from."""
        module = cst.Module([]).code_for_node(node.module) if node.module else ""
        if isinstance(node.names, cst.ImportStar) and module == "torch.utils.data":
            self._has_star_import = True

    def visit_ClassDef(self, node: cst.ClassDef) -> None:  # noqa: N802
        """Note classes that only extend torch's."""
        has_init = any(
            isinstance(part, cst.FunctionDef) and part.name.value == "__init__"
            for part in node.body.body
        )
        if not has_init and any(self._is_torch(base.value) for base in node.bases):
            self._loader_classes.add(node.name.value)

    def visit_Assign(self, node: cst.Assign) -> None:  # noqa: N802
        """Note where a name gets its value."""
        for target in node.targets:
            if isinstance(target.target, cst.Name):
                self.origins.assigned[target.target.value].append(self._line_of(node))

    def visit_Call(self, node: cst.Call) -> None:  # noqa: N802
        """Note loaders around the line, and options of the command line."""
        self.origins.note_option(node, self._line_of(node))
        place = self.get_metadata(PositionProvider, node)
        if not place.start.line <= self._line <= place.end.line:
            return
        is_torch = self._is_torch(node.func) or _is_init_of_parent(node.func)
        if is_torch or _last_name(node.func).endswith("Loader"):
            self._candidates.append(_Candidate(node, place.start.line, is_torch))

    def choose(self, source: bytes) -> _Candidate:
        """Give the one call that is meant.

        Raises:
            UsageError: there is none, or several.
        """
        begun = [one for one in self._candidates if one.start_line == self._line]
        found = begun or self._candidates
        if not found:
            lines = source.splitlines()
            held = (
                lines[self._line - 1].decode(errors="replace")
                if self._line <= len(lines)
                else ""
            )
            raise _not_found(self._line, f"it holds `{held.strip()}`")
        if len(found) > 1:
            raise _not_found(self._line, f"{len(found)} calls there build a loader")
        return found[0]

    def _is_torch(self, node: cst.BaseExpression) -> bool:
        names = {one.name for one in self.get_metadata(QualifiedNameProvider, node, set())}
        if names & TORCH_NAMES:
            return True
        last = _last_name(node)
        is_plain = isinstance(node, cst.Name)
        return is_plain and (
            last in self._loader_classes or (self._has_star_import and last == "DataLoader")
        )

    def _line_of(self, node: cst.CSTNode) -> int:
        return int(self.get_metadata(PositionProvider, node).start.line)


def _last_name(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


def _is_init_of_parent(node: cst.BaseExpression) -> bool:
    """Whether it is `super().__init__`: the line is known to have built a loader."""
    return (
        isinstance(node, cst.Attribute)
        and node.attr.value == "__init__"
        and isinstance(node.value, cst.Call)
        and _last_name(node.value.func) == "super"
    )


class _Origins:
    """Where the file gives values to names and options."""

    def __init__(self) -> None:
        self.assigned: defaultdict[str, list[int]] = defaultdict(list)
        self._options: dict[str, tuple[str, int]] = {}

    def note_option(self, node: cst.Call, line: int) -> None:
        """Note `add_argument("--workers", ...)`."""
        if _last_name(node.func) != "add_argument":
            return
        words = [_text_of(one.value) for one in node.args if one.keyword is None]
        options = [word for word in words if word.startswith("-")]
        named = [one for one in node.args if one.keyword and one.keyword.value == "dest"]
        long = next((one for one in options if one.startswith("--")), None)
        if long is not None:
            dest = _text_of(named[0].value) if named else long[2:].replace("-", "_")
            self._options[dest] = (long, line)

    def say(self, value: cst.BaseExpression, wanted: SettingValue) -> str:
        """Say where the value of an argument comes from."""
        code = cst.Module([]).code_for_node(value)
        option = self._options.get(_last_name(value))
        if option and isinstance(value, cst.Attribute):
            return f"it comes from `{code}`: give {option[0]} {wanted}, or change its default in line {option[1]}"
        lines = self.assigned.get(value.value) if isinstance(value, cst.Name) else None
        if lines:
            return f"it comes from `{code}`, which gets its value in line {', '.join(map(str, lines))}"
        return f"it comes from `{code}`"


def _text_of(node: cst.BaseExpression) -> str:
    """Give the text of a string literal; empty for anything else."""
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else ""


# --- editing --------------------------------------------------------------------------------------


class _Editor:
    """Sets arguments of one call."""

    def __init__(self, call: cst.Call, *, is_torch: bool, origins: _Origins) -> None:
        self.call = call
        self.changes: list[str] = []
        self.by_hand: list[ByHand] = []
        self._is_torch = is_torch
        self._origins = origins

    def leaves(self, name: str) -> bool:
        """Tell whether an argument was left for a person to set."""
        return any(one.name == name for one in self.by_hand)

    def set(self, name: str, value: SettingValue, *, needs_workers: bool) -> None:
        """Set an argument, or note why it is left."""
        if needs_workers:
            self._leave(name, value, "it needs workers, and their number is set by hand")
            return
        number = self._find(name)
        if number is not None:
            self._replace(number, name, value)
        elif (reason := self._why_not_added(name)) is not None:
            self._leave(name, value, reason)
        else:
            self.call = self.call.with_changes(
                **_with_argument(self.call, _argument(name, value))
            )
            self.changes.append(f"{name}={value}")

    def _find(self, name: str) -> int | None:
        """Give the position of an argument in the call."""
        for number, one in enumerate(self.call.args):
            if one.keyword is not None and one.keyword.value == name:
                return number
        at = POSITIONS.index(name) if name in POSITIONS and self._is_torch else None
        plain = [one for one in self.call.args if one.keyword is None and one.star != "**"]
        if at is None or at >= len(plain) or any(one.star for one in plain[: at + 1]):
            return None
        return at

    def _replace(self, number: int, name: str, value: SettingValue) -> None:
        old = self.call.args[number]
        if not _is_literal(old.value):
            self._leave(name, value, self._origins.say(old.value, value))
            return
        before = cst.Module([]).code_for_node(old.value)
        if before == str(value):
            return
        args = list(self.call.args)
        args[number] = old.with_changes(value=_literal(value))
        self.call = self.call.with_changes(args=args)
        self.changes.append(f"{name}={value} (was {before})")

    def _why_not_added(self, name: str) -> str | None:
        starred = [one for one in self.call.args if one.star]
        if starred:
            code = cst.Module([]).code_for_node(starred[-1].value)
            return f"it may come from `{starred[-1].star}{code}`"
        if not self._is_torch:
            code = cst.Module([]).code_for_node(self.call.func)
            return f"`{code}` is not torch's own DataLoader, and may not take it"
        return None

    def _leave(self, name: str, value: SettingValue, reason: str) -> None:
        self.by_hand.append(ByHand(name=name, value=value, reason=reason))


def _is_literal(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Name):
        return node.value in ("True", "False", "None")
    return isinstance(node, cst.Integer)


def _literal(value: SettingValue) -> cst.BaseExpression:
    return cst.Integer(str(value)) if type(value) is int else cst.Name(str(value))


def _argument(name: str, value: SettingValue) -> cst.Arg:
    nothing = cst.SimpleWhitespace("")
    equal = cst.AssignEqual(whitespace_before=nothing, whitespace_after=nothing)
    return cst.Arg(keyword=cst.Name(name), value=_literal(value), equal=equal)


def _with_argument(call: cst.Call, added: cst.Arg) -> dict[str, object]:
    """Put an argument behind the last one: on a line of its own where the others are, and with its comma if it had one.

    A comment behind the last argument stays with it.
    """
    if not call.args:
        return {"args": [added]}
    *before, last = call.args
    gap = _gap_between(call)
    if isinstance(last.comma, cst.Comma):
        ending = last.comma.whitespace_after
        added = added.with_changes(
            comma=last.comma.with_changes(whitespace_after=_bare(ending))
        )
    else:
        ending = last.whitespace_after_arg
        added = added.with_changes(whitespace_after_arg=_bare(ending))
        last = last.with_changes(whitespace_after_arg=cst.SimpleWhitespace(""))
    last = last.with_changes(
        comma=cst.Comma(whitespace_after=_with_comment_of(ending, gap))
    )
    return {"args": [*before, last, added]}


def _gap_between(call: cst.Call) -> cst.BaseParenthesizableWhitespace:
    """Give what parts two arguments of a call."""
    for one in reversed(call.args[:-1]):
        if isinstance(one.comma, cst.Comma):
            return _bare(one.comma.whitespace_after)
    first = call.whitespace_before_args
    return (
        _bare(first)
        if isinstance(first, cst.ParenthesizedWhitespace)
        else cst.SimpleWhitespace(" ")
    )


def _bare(gap: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    """Take comments and empty lines out of a gap."""
    if not isinstance(gap, cst.ParenthesizedWhitespace):
        return gap
    line = gap.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
    return gap.with_changes(first_line=line, empty_lines=[])


def _with_comment_of(
    ending: cst.BaseParenthesizableWhitespace, gap: cst.BaseParenthesizableWhitespace
) -> cst.BaseParenthesizableWhitespace:
    """Give a gap the comments of what stood behind the last argument before."""
    if not isinstance(ending, cst.ParenthesizedWhitespace):
        return gap
    if ending.first_line.comment is None and not ending.empty_lines:
        return gap
    if not isinstance(gap, cst.ParenthesizedWhitespace):
        return ending
    return gap.with_changes(first_line=ending.first_line, empty_lines=ending.empty_lines)

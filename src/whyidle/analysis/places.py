"""Stack samples → the few places that hold the time.

A sample belongs to the deepest function that still holds most of its caller's time: a wrapper is not a place, and
neither is each of forty small helpers. Library code is charged to the line of the person's own code that called it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from whyidle.model.findings import Place
from whyidle.model.timeline import Frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LIBRARY = re.compile(
    r"[/\\](site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python\d[^/\\]*[/\\]|^<frozen|^<string>"
    r"|[/\\]whyidle_agent[/\\]|[/\\]whyidle[/\\]testing\.py$"
)
"""Files that a person does not edit: installed packages, the standard library, generated code, the agent."""
INNER_FUNCTIONS = frozenset(("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"))
"""Frames that a person sees as lines of the function around them (and that are such from CPython 3.12 on)."""
FETCH_FILES = ("torch/utils/data/_utils/fetch.py", "torch/utils/data/_utils/worker.py")
"""The person's data code lies below these; above them is how the worker was started (with fork: the whole script)."""

OWN_PLACE_RATIO = 0.05
"""Below the first branching each child with this part of the time is a place of its own: the noise of a share found
from 400 samples (two workers for 20 s) is about 0.02, so a smaller place could not be told from it."""
WRAPPER_RATIO = 0.7
"""A function that spends this part of its time in one callee is its wrapper, and the callee is the place."""
LINE_GAP = 3
"""Lines of one function this close together are one place: the body of a loop."""


@dataclass(frozen=True, slots=True)
class WeightedStack:
    """Time seen in one stack."""

    frames: tuple[Frame, ...]
    """Root first."""
    weight_ns: float
    transform: str | None = None
    """Outermost transform that ran at the time."""


@dataclass(frozen=True, slots=True)
class HotPlace:
    """A place and the time it holds."""

    place: Place
    weight_ns: float
    sample_count: int
    is_outermost: bool = False
    """The place is a line of the outermost own function (`__getitem__`): its statements are told apart."""


def is_library(file: str) -> bool:
    """Tell whether a file belongs to an installed package, the standard library or us.

    >>> is_library("/usr/lib/python3.11/json/decoder.py"), is_library("/home/me/train.py")
    (True, False)
    """
    return LIBRARY.search(file) is not None


def below_fetch(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Cut off what lies above the making of a batch; all of it when no fetch is on the stack."""
    for depth in range(len(frames) - 1, -1, -1):
        if frames[depth].file.replace("\\", "/").endswith(FETCH_FILES):
            return frames[depth + 1 :]
    return frames


def find_hot_places(stacks: Iterable[WeightedStack]) -> list[HotPlace]:
    """Group samples into places.

    Args:
        stacks: Samples, already cut to the part below the fetch or the loop.

    Returns:
        Places by weight, largest first; their weights add up to that of the samples with any frame.
    """
    chains = [_Chain(_own_frames(stack), stack) for stack in stacks]
    chains = [chain for chain in chains if chain.frames]
    total_ns = sum(chain.stack.weight_ns for chain in chains)
    if total_ns <= 0:
        return []
    found: list[HotPlace] = []
    _collect(_group(chains, 0), 0, total_ns, found)
    merged = _merge_equal(found)
    return sorted(merged, key=lambda hot: -hot.weight_ns)


@dataclass(frozen=True, slots=True)
class _Chain:
    frames: tuple[Frame, ...]
    stack: WeightedStack


def _own_frames(stack: WeightedStack) -> tuple[Frame, ...]:
    """Keep the person's own frames; where there are none, the outermost frame that is no plumbing of torch."""
    own: list[Frame] = []
    for frame in stack.frames:
        if is_library(frame.file):
            continue
        if frame.function in INNER_FUNCTIONS and own and own[-1].file == frame.file:
            own[-1] = Frame(frame.file, own[-1].function, frame.line)
        else:
            own.append(frame)
    if own:
        return tuple(own)
    return tuple(frame for frame in stack.frames if "/torch/utils/data/" not in frame.file)[
        :1
    ]


def _weight(chains: Sequence[_Chain]) -> float:
    return sum(chain.stack.weight_ns for chain in chains)


def _group(chains: Sequence[_Chain], depth: int) -> list[list[_Chain]]:
    """Part chains by the function at a depth; those that end above it are parted by their last line."""
    groups: dict[tuple[str, str, str | None], list[_Chain]] = defaultdict(list)
    ended: list[_Chain] = []
    for chain in chains:
        if len(chain.frames) > depth:
            frame = chain.frames[depth]
            groups[frame.file, frame.function, None].append(chain)
        else:
            ended.append(chain)
    return [*groups.values(), *_by_line(ended, depth - 1)]


def _by_line(chains: Sequence[_Chain], depth: int) -> list[list[_Chain]]:
    groups: list[list[_Chain]] = []
    last_key: tuple[str | None, int] | None = None
    for chain in sorted(
        chains, key=lambda one: (one.stack.transform or "", one.frames[depth].line)
    ):
        key = chain.stack.transform, chain.frames[depth].line
        if last_key is None or key[0] != last_key[0] or key[1] - last_key[1] > LINE_GAP:
            groups.append([])
        groups[-1].append(chain)
        last_key = key
    return groups


def _collect(
    groups: list[list[_Chain]], depth: int, total_ns: float, found: list[HotPlace]
) -> None:
    """First branching: every group with a share worth naming is a place; the rest joins the largest."""
    if not groups:
        return
    groups = sorted(groups, key=_weight, reverse=True)
    named = [
        group for group in groups if _weight(group) >= OWN_PLACE_RATIO * total_ns
    ] or groups[:1]
    rest = [chain for group in groups[len(named) :] for chain in group]
    for number, group in enumerate(named):
        below = _group(group, depth + 1) if _goes_on(group, depth) else []
        if len(named) == 1 and below:
            _collect(below, depth + 1, total_ns, found)
            if rest:
                found.append(_place_of(rest, depth))
        else:
            hot = _descend(group, depth)
            extra_ns = _weight(rest) if number == 0 else 0.0
            found.append(replace(hot, weight_ns=hot.weight_ns + extra_ns))


def _goes_on(group: Sequence[_Chain], depth: int) -> bool:
    return any(len(chain.frames) > depth for chain in group)


def _descend(group: list[_Chain], depth: int) -> HotPlace:
    """Go down through wrappers."""
    whole_ns = _weight(group)
    chains = group
    while _goes_on(chains, depth):
        inner = max(_group(chains, depth + 1), key=_weight)
        if not _goes_on(inner, depth + 1) or _weight(inner) < WRAPPER_RATIO * whole_ns:
            break
        chains, depth = inner, depth + 1
    return replace(_place_of(chains, depth), weight_ns=whole_ns, sample_count=len(group))


def _place_of(chains: Sequence[_Chain], depth: int) -> HotPlace:
    """Name the function at a depth and the line in it with the most time."""
    lines: dict[tuple[str, str, int, str | None], float] = defaultdict(float)
    depth = min(depth, *(len(chain.frames) - 1 for chain in chains))
    for chain in chains:
        frame = chain.frames[depth]
        lines[frame.file, frame.function, frame.line, chain.stack.transform] += (
            chain.stack.weight_ns
        )
    file, function, line, transform = max(lines, key=lambda key: lines[key])
    place = Place(file=file, line=line, function=function, transform=transform)
    return HotPlace(place, _weight(chains), len(chains), is_outermost=depth == 0)


def _merge_equal(found: list[HotPlace]) -> list[HotPlace]:
    """Join the parts of one function; statements of the outermost one stay apart."""
    merged: dict[tuple[object, ...], HotPlace] = {}
    for hot in sorted(found, key=lambda one: -one.weight_ns):
        place = hot.place
        line = place.line if hot.is_outermost else None
        key = place.file, place.function, place.transform, line
        before = merged.get(key)
        merged[key] = hot if before is None else replace(
            before,
            weight_ns=before.weight_ns + hot.weight_ns,
            sample_count=before.sample_count + hot.sample_count,
        )  # fmt: skip
    return list(merged.values())

"""What a rule is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.loader_model import Label
from whyidle.analysis.loops import find_element_loop
from whyidle.model.findings import Place

if TYPE_CHECKING:
    from whyidle.analysis.contention import Contention
    from whyidle.analysis.loops import ElementLoop
    from whyidle.analysis.regimes import Stance
    from whyidle.model.findings import Activity, Cause, Limit
    from whyidle.model.remedies import Settings
    from whyidle.model.timeline import IntArray, Iteration, RankTimeline

WORTH_SHARE = 0.08
"""A cause below this part of the idle time is not worth a prescription of its own: at 60 % idle it is 5 % of a step."""
MAX_PLACES = 3
"""Places of one remedy: who has three functions to mend does not ask for a fourth."""


@dataclass(frozen=True, slots=True)
class Source:
    """Text of a source file as it was when the run was recorded."""

    text: str | None
    reason: str = ""
    """Why there is none: `it has changed since the run`."""


SourceReader = Callable[[str], Source]
"""File as the interpreter knew it → its text. Whoever calls analysis reads files; analysis does not."""


def no_sources(_: str) -> Source:
    """Stand in where nobody reads files."""
    return Source(None, "sources were not looked at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The evidence of one rank."""

    limit: Limit
    causes: tuple[Cause, ...]
    """Sorted by share."""
    rank: RankTimeline
    loader: Iteration | None
    """The pass that is forecast: the last one of the loader that fed most."""
    stance: Stance
    contention: Contention
    torch: str | None
    read_source: SourceReader = no_sources

    def causes_of(self, *activities: Activity) -> list[Cause]:
        """Give the causes with one of these activities that are worth a change, largest first."""
        worth = [
            one
            for one in self.causes
            if one.activity in activities and one.share >= WORTH_SHARE
        ]
        return worth[:MAX_PLACES]

    @property
    def batch_bytes(self) -> float:
        """Bytes in a batch's tensors and arrays, mean; 0 where that was not recorded."""
        return _mean_known(self.rank.batches.size_bytes)

    @property
    def batch_tensors(self) -> float:
        """Tensors in a batch, mean; 0 where that was not recorded."""
        return _mean_known(self.rank.batches.tensor_count)

    @property
    def built_at(self) -> Place:
        """Where the loader is built."""
        if self.loader is None:
            return Place()
        return Place(file=self.loader.build_file, line=self.loader.build_line)

    @property
    def loader_name(self) -> str:
        """The loader in words: `the DataLoader built at train.py:88`."""
        place = self.built_at
        if place.file is None:
            return "the DataLoader"
        return f"the DataLoader built at {PurePath(place.file).name}:{place.line}"

    def source_line(self, place: Place) -> str | None:
        """Give the text of a place's line; None where it is not known."""
        if place.file is None or place.line is None:
            return None
        lines = (self.read_source(place.file).text or "").splitlines()
        return lines[place.line - 1].strip() if place.line <= len(lines) else None

    def loop_at(self, place: Place) -> ElementLoop | None:
        """Give the loop around a place that works element by element."""
        if place.file is None or place.line is None:
            return None
        text = self.read_source(place.file).text
        return find_element_loop(text, place.line, place.function) if text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change that a rule would make, before it is forecast."""

    remedy: str
    title: str
    how: str
    where: Place
    change: Change | None
    """None: it cannot be forecast, for the reason in `unknown`."""
    automatic: bool = False
    settings: Settings = ()
    cost: float = 0.0
    """Of variants of one remedy at one place that gain the same, the one that costs least is taken."""
    is_common: bool = False
    """People try it first: where it gains nothing, that is said."""
    in_vain: str = ""
    """Why it gains nothing, if it does not."""
    unknown: str = ""
    """Why it cannot be forecast."""


def scaled(cause: Cause, factor: float) -> Change:
    """Leave this part of a cause's work in the loader."""
    return Change(scaled=((Label.of(cause), factor),))


def in_loop(cause: Cause, factor: float) -> Change:
    """Leave this part of a cause's work in the loop's own code."""
    return Change(loop_removed=((Label.of(cause), factor),))


def _mean_known(values: IntArray) -> float:
    known = values[values >= 0]
    return float(known.mean()) if len(known) else 0.0


def plural(count: int) -> str:
    """Write a number of workers.

    >>> plural(1), plural(4)
    ('1 loader worker', '4 loader workers')
    """
    return f"{count} loader worker{'' if count == 1 else 's'}"


def name_place(where: Place) -> str:
    """Name a place within a sentence: `augment (augment.py:98)`, `/data (nfs4)`."""
    name = where.transform or where.function
    file = PurePath(where.file).name if where.file else None
    spot = f"{file}:{where.line}" if file and where.line else file
    if name and spot:
        return f"{name} ({spot})"
    return name or spot or where.mount or "the data set"

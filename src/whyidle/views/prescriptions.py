"""What would help, by how much, and what would not: the part of a verdict's screen that looks forward.

A bar runs from no gain to what free batches would gain; its light end is the 90 % interval.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.text import Text

from whyidle.views import words
from whyidle.views.screen import ACCENT, LABEL_CELLS, QUIET, Screen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.model.findings import Aside, Forecast, Pair, Prescription, Verdict

MAX_SHOWN = 4
"""More are named with their number: nobody begins with the fifth."""
MAX_UNKNOWN = 3
WHOLE_HOWS = 2
"""Prescriptions that are explained whole; of the others the first sentence is shown."""
UNIT_WIDTH = 64
"""On a narrower screen the titles have no room for the unit."""
NONE = "none"
"""Remedy of a verdict in which the device is the limit."""
_SENTENCE_END = re.compile(r"(?<=[.)`])\s+(?=[A-Z`])")
_STEP = re.compile(r"\(\d+\) ")
"""A numbered step of a `how`, which hangs behind its number."""


def draw_prescriptions(verdict: Verdict, screen: Screen) -> list[Text]:
    """Draw what would help; nothing where no forecast was made."""
    found = verdict.prescriptions
    if found and found[0].remedy == NONE:
        return screen.row("would help", f"{found[0].title}. {found[0].how}")
    lines = list(_helpful(verdict, screen))
    lines += _vain(verdict.would_not_help, screen)
    lines += _unknown(verdict.may_help, screen)
    return lines


def _helpful(verdict: Verdict, screen: Screen) -> Iterator[Text]:
    found, ceiling = verdict.prescriptions, verdict.ceiling
    if ceiling is None:
        return
    if not found:
        yield from screen.row("would help", "nothing that can be forecast here")
    else:
        bar, gap = " " * _bar_cells(screen), " " * 2
        titles = f"{'would help':<{LABEL_CELLS}}{bar}  gain{gap}90 % interval"
        unit = ", in steps per second" if screen.width >= UNIT_WIDTH else ""
        yield Text(titles + unit, style=QUIET)
    top = max([ceiling.speedup, *(one.forecast.high for one in found[:MAX_SHOWN])])
    for at, one in enumerate(found[:MAX_SHOWN]):
        yield from _prescription(at, one, top, screen)
    if len(found) > MAX_SHOWN:
        more = f"{len(found) - MAX_SHOWN} more: whyidle report --json"
        yield from screen.row("", Text(more, QUIET))
    if verdict.pair is not None:
        yield from _pair(verdict.pair, found, screen)
    free = f"{_times(ceiling)} if batches cost nothing: no change of the loader gains more"
    yield from screen.row("data free", free)
    if any(one.automatic for one in found[:MAX_SHOWN]):
        auto = "`whyidle try` can make this change for a test run, and measure it"
        yield from screen.row("*", auto)


def _bar_cells(screen: Screen) -> int:
    return min(max(screen.width // 6 - 1, 6), 16)


def _prescription(at: int, one: Prescription, top: float, screen: Screen) -> Iterator[Text]:
    mark = " *" if one.automatic else ""
    first = Text.assemble((f"{f'help {at + 1}{mark}':<{LABEL_CELLS}}", QUIET))
    first.append_text(_bar(one.forecast, top, screen))
    numbers = f"{_times(one.forecast):>6}  {_interval(one.forecast):<15}"
    first.append(screen.clean(numbers), "bold")
    title = Text(screen.clean(one.title), style=f"bold {ACCENT}")
    yield from screen.wrap(title, first, " " * first.cell_len)
    indent = " " * LABEL_CELLS
    for line in _how(one, whole=at < WHOLE_HOWS):
        step = _STEP.match(line)
        hanging = " " * (step.end() if step else 0)
        yield from screen.wrap(line, indent, indent + hanging)


def _how(one: Prescription, *, whole: bool) -> list[str]:
    return one.how.splitlines() if whole else [_first_sentence(one.how)]


def _bar(forecast: Forecast, top: float, screen: Screen) -> Text:
    """Solid up to the interval's low end, light up to its high end."""
    cells = _bar_cells(screen)
    scale = cells / max(top - 1.0, 1e-9)
    solid = min(cells, round(max(forecast.low - 1.0, 0.0) * scale))
    reach = min(cells, max(solid + 1, round((forecast.high - 1.0) * scale)))
    full, light = screen.glyphs.split[0], screen.glyphs.split[2]
    drawn = Text.assemble((full * solid, ACCENT), (light * (reach - solid), ACCENT))
    drawn.append(" " * (cells - reach))
    return drawn


def _times(forecast: Forecast) -> str:
    return f"{forecast.speedup:.2f}×"


def _interval(forecast: Forecast) -> str:
    return f"[{forecast.low:.2f}, {forecast.high:.2f}]"


def _pair(pair: Pair, found: tuple[Prescription, ...], screen: Screen) -> list[Text]:
    titles = [one.title for one in found]
    numbers = " + ".join(
        str(titles.index(one) + 1) for one in (pair.first, pair.second) if one in titles
    )
    said = f"{numbers}: {_times(pair.forecast)} {_interval(pair.forecast)}; {pair.note}"
    return screen.row("together", said)


def _vain(asides: tuple[Aside, ...], screen: Screen) -> list[Text]:
    lines = [Text("would not help", style=QUIET)] if asides else []
    for one in asides:
        name = words.REMEDY_WORDS.get(one.remedy, one.title)
        figure = f"{_times(one.forecast)}  " if one.forecast else ""
        indent = " " * LABEL_CELLS
        hanging = indent + " " * len(figure)
        lines += screen.wrap(f"{figure}{name}: {one.reason}", indent, hanging)
    return lines


def _unknown(asides: tuple[Aside, ...], screen: Screen) -> list[Text]:
    lines: list[Text] = []
    reason: str | None = None
    for one in asides[:MAX_UNKNOWN]:
        if one.reason != reason:
            said = one.reason if one.forecast else f"no forecast: {one.reason}"
            label = "may help" if reason is None else ""
            lines += screen.row(label, Text(screen.clean(said), QUIET))
            reason = one.reason
        gain = f"{_times(one.forecast)} {_interval(one.forecast)}  " if one.forecast else ""
        advice = f"{gain}{one.title}. {_first_sentence(one.how)}"
        bullet = Text.assemble((f"{' ' * LABEL_CELLS}{screen.glyphs.bullet} ", QUIET))
        lines += screen.wrap(advice, bullet, " " * (LABEL_CELLS + 2))
    return lines


def _first_sentence(how: str) -> str:
    return _SENTENCE_END.split(how.partition("\n")[0], maxsplit=1)[0]

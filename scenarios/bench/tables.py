"""Numbers and tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scenarios.bench.stats import Estimate

NOTHING = "—"
SHOWN = 12
"""How many of the largest errors are listed."""


def prose(*sentences: str) -> str:
    """Join sentences into one paragraph."""
    return " ".join(sentences)


def per_cent(value: float | None, digits: int = 0) -> str:
    """Give a part as per cent."""
    return NOTHING if value is None else f"{value * 100:.{digits}f} %"


def as_rate(estimate: Estimate | None) -> str:
    """Give a proportion with its interval and count: `95 % (90–98), 120`."""
    if estimate is None:
        return NOTHING
    low, high = estimate.low * 100, estimate.high * 100
    return f"{estimate.value * 100:.0f} % ({low:.0f}–{high:.0f}), {estimate.count}"


def as_part(estimate: Estimate | None, digits: int = 1, *, signed: bool = False) -> str:
    """Give a part with its interval: `2.1 % (1.8–2.4)`."""
    if estimate is None:
        return NOTHING
    sign = "+" if signed else ""
    low, high = (f"{it * 100:{sign}.{digits}f}" for it in (estimate.low, estimate.high))
    between = " to " if signed else "–"
    return f"{estimate.value * 100:{sign}.{digits}f} % ({low}{between}{high})"


def as_number(estimate: Estimate | None) -> str:
    """Give a number with its interval: `0.81 (0.75–0.86)`."""
    if estimate is None:
        return NOTHING
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def verdict_on(met: bool | None) -> str:
    """Say whether a target is met."""
    return {True: "met", False: "**missed**", None: "not measured"}[met]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Give the lines of a table."""
    return [
        line_of(head),
        "|" + "---|" * len(head),
        *(line_of(row) for row in rows),
        "",
    ]


def line_of(cells: Sequence[str]) -> str:
    """Give one line of a table."""
    return "| " + " | ".join(cells) + " |"


def bullets(items: Sequence[str], nothing: str) -> list[str]:
    """Give a list, or a word for an empty one."""
    return [*(f"- {it}" for it in items), ""] if items else [nothing, ""]

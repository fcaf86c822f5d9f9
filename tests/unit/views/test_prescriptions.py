"""What would help, on a terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from tests.verdicts import make_cause, make_verdict
from whyidle.model.findings import Aside, Forecast, Limit, Pair, Place, Prescription
from whyidle.views.terminal import render_verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from whyidle.model.findings import Verdict


def _gain(speedup: float, margin: float = 0.1) -> Forecast:
    return Forecast(
        speedup=speedup,
        low=speedup - margin,
        high=speedup + margin,
        basis="event simulation",
    )


def _prescription(
    remedy: str, title: str, how: str, speedup: float, **options
) -> Prescription:
    return Prescription(
        remedy=remedy,
        where=Place(file="/home/me/train.py", line=88),
        title=title,
        how=how,
        automatic=options.get("automatic", False),
        forecast=_gain(speedup),
    )


def _verdict() -> Verdict:
    loop = (
        "In outline_maps (targets.py:45), lines 33 to 45 work through `points` element by element. Instead:\n"
        "(1) take all at once: `x, y = (points[:, 0] / STRIDE).T`\n"
        "(2) turn the nest inside out: keep the short loops over `dy` and `dx` outside, each pass then handles all "
        "elements in one operation\n"
        "The forecast takes a tenth of the time for granted."
    )
    workers = "Set num_workers=4 in the DataLoader built at train.py:88. Each worker is a process."
    write = "write outline_maps as array operations"
    raised = "4 loader workers instead of 2"
    return make_verdict(
        make_cause(),
        prescriptions=(
            _prescription("vectorise-loop", write, loop, 1.9),
            _prescription("raise-workers", raised, workers, 1.5, automatic=True),
            *(
                _prescription("speed-up-code", f"part {at} twice as fast", "So.", 1.2)
                for at in range(3)
            ),
        ),
        ceiling=_gain(3.2),
        pair=Pair(
            first=write,
            second=raised,
            forecast=_gain(2.6),
            note="they do not get in each other's way",
        ),
        would_not_help=(
            Aside(
                remedy="raise-prefetch",
                where=Place(),
                title="t",
                how="",
                reason="the workers never get ahead: a deeper queue would stay empty",
                forecast=_gain(1.0, 0.01),
            ),
        ),
        may_help=(
            Aside(
                remedy="limit-threads",
                where=Place(),
                title="one thread in each worker",
                how="Each worker has 3.4 threads ready. Give it one.",
                reason="the interval includes no gain",
                forecast=_gain(1.2, 0.25),
            ),
            Aside(
                remedy="balance-ranks",
                where=Place(),
                title="as much work on every rank",
                how="h",
                reason="it cannot be told",
                forecast=None,
            ),
        ),
    )


def test_what_would_help_as_a_screen(golden: Callable[[str, str], None]) -> None:
    """Gains with their intervals, what to do, what is in vain."""
    golden("prescriptions.txt", render_verdict(_verdict(), color=False))


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("blocks", [True, False])
def test_no_line_is_wider_than_the_screen(width: int, blocks: bool) -> None:
    """At any width, in blocks or ASCII, in colour or without."""
    text = render_verdict(_verdict(), width=width, color=False, blocks=blocks)

    assert max(map(cell_len, text.splitlines())) <= width
    assert blocks or text.isascii()


def test_device_as_the_limit_is_one_sentence_about_its_ceiling() -> None:
    """There is nothing to change in the input."""
    nothing = _prescription(
        "none", "nothing in the input", "What is left is the device.", 1.0
    )
    verdict = replace(
        _verdict(), limit=Limit.DEVICE, prescriptions=(nothing,), would_not_help=()
    )

    text = render_verdict(verdict, color=False)

    assert "would help" in text
    assert "nothing in the input. What is left is the device." in text
    assert "help 1" not in text


def test_redacted_advice_shows_no_folder() -> None:
    """Neither in places nor in sentences."""
    one = replace(_verdict().prescriptions[0], how="Read /secret/data/7.png less often.")
    verdict = replace(_verdict(), prescriptions=(one,), pair=None)

    assert "secret" not in render_verdict(verdict, color=False, redact=True)

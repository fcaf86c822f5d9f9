"""`speed-up-code`: the named function becomes faster, by whatever means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.rules.case import Proposal, in_loop, name_place, scaled
from whyidle.analysis.rules.hints import find_hint
from whyidle.analysis.rules.loop_code import is_special
from whyidle.model.findings import Activity, Regime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case
    from whyidle.model.findings import Cause

LEFT_RATIO = 0.5
"""`Twice as fast` is what a person can picture; the forecast says so."""
SLEPT_RATIO = 0.0


def propose(case: Case) -> Iterator[Proposal]:
    """Name the functions whose time is worth cutting, where no loop says how."""
    for cause in case.causes_of(Activity.COMPUTE):
        if cause.where.function and case.loop_at(cause.where) is None:
            yield _faster(case, cause)
    for cause in case.causes_of(Activity.SLEEP):
        yield Proposal(
            remedy="speed-up-code",
            title=f"no sleep in {cause.where.function or 'the workers'}",
            how=f"{name_place(cause.where)} sleeps while the loop waits for it{_quoted(case, cause)}. Wait for the "
            "event itself instead of polling for it, or do not wait at all.",
            where=cause.where,
            change=scaled(cause, SLEPT_RATIO),
        )
    for cause in case.causes_of(Activity.PYTHON):
        if not is_special(case, cause):
            yield _in_loop(case, cause)


def _faster(case: Case, cause: Cause) -> Proposal:
    function = cause.where.transform or cause.where.function
    hint = find_hint(case, cause.where)
    cheaper = f"For this: {hint}. Else" if hint else "Cheaper"
    return Proposal(
        remedy="speed-up-code",
        title=f"{function} twice as fast",
        how=f"The time goes into {name_place(cause.where)}{_quoted(case, cause)}. {cheaper}: a smaller input, a faster "
        "library for the same operation, less of it, or once ahead of the training instead of in every epoch. The "
        "forecast is for half the time.",
        where=cause.where,
        change=scaled(cause, LEFT_RATIO),
    )


def _in_loop(case: Case, cause: Cause) -> Proposal:
    seldom = cause.regime is Regime.PERIODIC
    doing = "less often, or cheaper" if seldom else "cheaper, or only every so many steps"
    return Proposal(
        remedy="speed-up-code",
        title=f"half of {cause.where.function or 'the loop'}'s own time between batches",
        how=f"Between batches the loop is in {name_place(cause.where)}{_quoted(case, cause)} while the device has "
        f"nothing to do. Do it {doing}, or after the next step was launched. The forecast is for half the time.",
        where=cause.where,
        change=in_loop(cause, LEFT_RATIO),
    )


def _quoted(case: Case, cause: Cause) -> str:
    line = case.source_line(cause.where)
    return f": `{line}`" if line else ""

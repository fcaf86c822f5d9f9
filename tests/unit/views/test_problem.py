"""Errors and checks as a person reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from whyidle.errors import RunFolderError
from whyidle.model.checks import Check, State
from whyidle.views.checklist import render_checks
from whyidle.views.problem import render_problem

if TYPE_CHECKING:
    from collections.abc import Callable

ERROR = RunFolderError(
    "there is no folder '/home/me/projects/polygons/whyidle-runs/20260131-093000-1'; expected a run folder",
    slug="run-folder-missing",
    hint="name a folder in ./whyidle-runs, or record a run with `whyidle run`",
)
CHECKS = (
    Check(name="CPUs", state=State.OK, found="2 of 2 allowed, no quota"),
    Check(
        name="ptrace scope",
        state=State.LIMITED,
        found="2: only privileged processes may look at others: what blocks threads is unknown",
        remedy="As root: sysctl kernel.yama.ptrace_scope=1",
    ),
    Check(name="agent", state=State.MISSING, found="\x1b there is no python on PATH"),
)


def test_problem_is_as_a_person_has_read_it(golden: Callable[[str, str], None]) -> None:
    """Message, hint and slug stand in a tidy block."""
    golden("problem.txt", render_problem(ERROR))


@pytest.mark.parametrize("width", [60, 80])
def test_problem_fits(width: int) -> None:
    """A long path is broken rather than running over."""
    lines = render_problem(ERROR, width=width).splitlines()

    assert max(map(len, lines)) <= width


def test_checks_are_as_a_person_has_read_them(golden: Callable[[str, str], None]) -> None:
    """A row a check, with what to do below it and a sum at the end."""
    golden("checks.txt", render_checks(CHECKS, width=80, color=False, blocks=True))


@pytest.mark.parametrize("width", [60, 80])
def test_checks_fit(width: int) -> None:
    """No row is wider than the screen."""
    text = render_checks(CHECKS, width=width, color=False, blocks=False)

    assert max(map(cell_len, text.splitlines())) <= width


def test_checks_say_so_when_nothing_is_missing() -> None:
    """A machine where all can be observed gets a plain answer."""
    text = render_checks(CHECKS[:1], width=80, color=True, blocks=True)

    assert text.splitlines()[-1] == "Everything that a verdict needs can be observed here."

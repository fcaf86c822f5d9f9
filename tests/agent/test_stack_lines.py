"""The line of a frame that is at an instruction without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.agent.conftest import Target

PROGRAM = """
from types import SimpleNamespace
from whyidle_agent import stacks

lines = [(0, 4, 10), (4, 10, 12), (10, 14, None), (14, 20, 15), (20, 24, None)]
code = SimpleNamespace(co_firstlineno=9, co_lines=lambda: lines)
for at in (10, 12, 22, -1):
    print(stacks._line_of(code, at))
"""


def test_line_when_instruction_has_none(target: Target) -> None:
    """It is that of the instruction before; of the function where there is none either."""
    assert target.output(PROGRAM).split() == ["12", "12", "15", "9"]

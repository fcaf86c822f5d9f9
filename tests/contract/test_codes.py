"""The numbers that analysis reads are those that the agent writes."""

from __future__ import annotations

import pytest

from whyidle.model import codes
from whyidle.model.waits import Wait
from whyidle_agent import wire

ENUMS = {
    "LOADER_": codes.LoaderFlag,
    "ASK_": codes.AskFlag,
    "FETCH_": codes.FetchFlag,
    "STACK_ROLE_": codes.StackRole,
    "STACK_": codes.StackFlag,
    "MARK_": codes.Mark,
    "DEVICE_KIND_": codes.DeviceCode,
    "PROCESS_ROLE_": codes.ProcessRole,
    "WAIT_": Wait,
}
NOT_FLAGS = {"LOADER_PLACE", "FETCH_COST"}


def _written(prefix: str) -> dict[str, int]:
    longer = tuple(other for other in ENUMS if other != prefix and other.startswith(prefix))
    return {
        name.removeprefix(prefix): value
        for name, value in vars(wire).items()
        if name.startswith(prefix)
        and not name.startswith(longer or "\0")
        and name not in NOT_FLAGS
    }


@pytest.mark.parametrize("prefix", ENUMS)
def test_codes_equal_what_the_agent_writes(prefix: str) -> None:
    """Each enumeration has exactly the names and numbers of the wire format."""
    assert {one.name: one.value for one in ENUMS[prefix]} == _written(prefix)

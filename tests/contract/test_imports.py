"""What an import pulls in: nothing but the standard library for the agent, little for whyidle."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

SOURCES = REPOSITORY / "src"
AGENT_MODULES = sorted(
    f"whyidle_agent.{path.stem}".removesuffix(".__init__")
    for path in (SOURCES / "whyidle_agent").glob("*.py")
)
HEAVY = {"numpy", "polars", "rich", "torch"}


def _modules_after(statement: str) -> set[str]:
    """Run a statement in an interpreter of its own; give the names of all modules it loaded."""
    program = (
        "import json, sys\n"
        f"sys.path.insert(0, {str(SOURCES)!r})\n"
        "before = set(sys.modules)\n"
        f"{statement}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))\n"
    )
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(result.stdout))


@pytest.mark.parametrize("module", AGENT_MODULES)
def test_agent_module_pulls_in_the_standard_library_only(module: str) -> None:
    """Each module of the agent imports where nothing is installed, and loads nothing foreign."""
    loaded = {name.partition(".")[0] for name in _modules_after(f"import {module}")}

    assert loaded - set(sys.stdlib_module_names) == {"whyidle_agent"}


def test_agent_package_does_nothing_when_imported() -> None:
    """Importing the package starts nothing and loads nothing else."""
    assert _modules_after("import whyidle_agent") == {"whyidle_agent"}


def test_wire_needs_nothing_else_of_the_agent() -> None:
    """Readers of journals get the layouts without the code that runs in a target."""
    loaded = _modules_after("import whyidle_agent.wire")

    assert {name for name in loaded if name.startswith("whyidle")} == {
        "whyidle_agent",
        "whyidle_agent.wire",
    }


@pytest.mark.parametrize("module", ["whyidle", "whyidle.testing"])
def test_whyidle_is_light_to_import(module: str) -> None:
    """A training that imports whyidle does not pay for tables, screens or torch."""
    loaded = {name.partition(".")[0] for name in _modules_after(f"import {module}")}

    assert not loaded & HEAVY

"""The agent's sources are for CPython 3.8; the file on PYTHONPATH is for whatever a target starts."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

AGENT = REPOSITORY / "src" / "whyidle_agent"
SITECUSTOMIZE = AGENT / "inject" / "sitecustomize.py"
COMPILE = (
    "import sys\nfor name in sys.argv[1:]: compile(open(name, 'rb').read(), name, 'exec')"
)


def _interpreter(version: str) -> str:
    """Find a CPython that really runs; skip the test where there is none."""
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in [shutil.which(f"python{version}"), *map(str, installed)]:
        if (
            candidate
            and subprocess.run(
                [candidate, "-V"], capture_output=True, check=False
            ).returncode
            == 0
        ):
            return candidate
    pytest.skip(f"no CPython {version} here")


@pytest.mark.parametrize("path", sorted(AGENT.rglob("*.py")), ids=lambda path: path.stem)
def test_agent_source_uses_the_grammar_of_38(path: Path) -> None:
    """No syntax that is younger than 3.8."""
    ast.parse(path.read_text(), feature_version=(3, 8))


def test_agent_compiles_under_38() -> None:
    """A real 3.8 accepts every source of the agent."""
    python = _interpreter("3.8")

    subprocess.run([python, "-c", COMPILE, *sorted(AGENT.rglob("*.py"))], check=True)


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7"])
def test_sitecustomize_compiles_under_old_interpreters(version: str) -> None:
    """A target may start an interpreter that the agent does not support; it must not notice."""
    python = _interpreter(version)

    subprocess.run([python, "-c", COMPILE, SITECUSTOMIZE], check=True)

"""Code stays in pieces that a person can read in one go."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

SOURCES = sorted((REPOSITORY / "src").rglob("*.py"))
MODULE_LINES, FUNCTION_LINES = 600, 80
EMPTY_WORDS = {"base", "common", "helpers", "manager", "misc", "util", "utils"}


def _name(path: Path) -> str:
    return str(path.relative_to(REPOSITORY / "src"))


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_module_and_its_functions_are_short(path: Path) -> None:
    """No module over 600 lines, no function over 80."""
    text = path.read_text()
    lengths = {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None
    }

    assert len(text.splitlines()) <= MODULE_LINES
    assert {
        name: length for name, length in lengths.items() if length > FUNCTION_LINES
    } == {}


def test_modules_are_named_after_what_they_hold() -> None:
    """No module is a drawer for whatever does not fit elsewhere."""
    assert [_name(path) for path in SOURCES if path.stem in EMPTY_WORDS] == []

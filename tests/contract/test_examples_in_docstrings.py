"""Every example in a docstring gives what it says."""

from __future__ import annotations

import doctest
import importlib

import pytest

from tests.conftest import REPOSITORY

SOURCES = REPOSITORY / "src"
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
    for path in (SOURCES / "whyidle").rglob("*.py")
    if ">>>" in path.read_text()
)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_docstring_examples_are_true(name: str) -> None:
    """Running the examples of a module prints what stands below them."""
    results = doctest.testmod(importlib.import_module(name))

    assert (results.failed, results.attempted > 0) == (0, True)

"""The public names are those in `__all__`, and a reader finds them in order."""

from __future__ import annotations

import ast
import types
from pathlib import Path

import pytest

import whyidle
from tests.conftest import REPOSITORY

MODULES = sorted((REPOSITORY / "src").rglob("*.py"))


def _declared_names(path: Path) -> list[str] | None:
    for statement in ast.parse(path.read_text()).body:
        if (
            isinstance(statement, ast.Assign)
            and ast.unparse(statement.targets[0]) == "__all__"
        ):
            return ast.literal_eval(statement.value)
    return None


@pytest.mark.parametrize(
    "path", MODULES, ids=lambda path: str(path.relative_to(REPOSITORY / "src"))
)
def test_all_is_sorted(path: Path) -> None:
    """Where a module lists its public names, it lists them in order and once."""
    names = _declared_names(path)

    assert names is None or names == sorted(set(names))


def test_all_of_whyidle_is_complete() -> None:
    """Every public name of the package is in `__all__`, and every name there exists."""
    public = {
        name
        for name, value in vars(whyidle).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    } - {"annotations", "TYPE_CHECKING"}

    assert public <= set(whyidle.__all__)
    assert all(hasattr(whyidle, name) for name in whyidle.__all__)

"""Every slug that a person may meet has an entry in docs/messages.md, and every entry has a slug."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.conftest import REPOSITORY

SOURCES = sorted((REPOSITORY / "src").rglob("*.py"))
SLUG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")


def _position_of_slug(node: ast.AST) -> dict[str, int]:
    """Name a function or a record with a `slug`, and tell where it stands among its arguments."""
    if isinstance(node, ast.FunctionDef):
        names = [argument.arg for argument in node.args.args]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    elif isinstance(node, ast.ClassDef):
        fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
        names = [ast.unparse(target) for target in fields]
    else:
        return {}
    return {node.name: names.index("slug")} if "slug" in names else {}


def _slug_expressions(node: ast.AST, positions: dict[str, set[int]]) -> list[ast.expr]:
    """Give the expressions under a node that become a slug."""
    if isinstance(node, ast.Dict):
        return [
            value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and key.value == "slug"
        ]
    if not isinstance(node, ast.Call):
        return []
    name = (
        node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    )
    found = [node.args[at] for at in positions.get(name, ()) if at < len(node.args)]
    return found + [one.value for one in node.keywords if one.arg == "slug"]


def _slugs_of_table(node: ast.AST, constants: dict[str, ast.expr]) -> list[ast.expr]:
    """Give the column that `for slug, ... in TABLE` goes through."""
    if not isinstance(node, ast.For | ast.comprehension) or not isinstance(
        node.target, ast.Tuple
    ):
        return []
    names = [ast.unparse(one) for one in node.target.elts]
    table = constants.get(ast.unparse(node.iter), node.iter)
    if "slug" not in names or not isinstance(table, ast.Tuple | ast.List):
        return []
    rows = [row for row in table.elts if isinstance(row, ast.Tuple)]
    return [row.elts[names.index("slug")] for row in rows]


def _all_expressions(trees: list[ast.Module]) -> list[ast.expr]:
    """Give every expression that becomes a slug; a name of a constant is replaced by its value."""
    positions: dict[str, set[int]] = defaultdict(set)
    nodes = [node for tree in trees for node in ast.walk(tree)]
    for node in nodes:
        for name, at in _position_of_slug(node).items():
            positions[name].add(at)
    constants = {
        ast.unparse(node.targets[0]): node.value
        for node in nodes
        if isinstance(node, ast.Assign)
    }
    expressions = [one for node in nodes for one in _slug_expressions(node, positions)]
    expressions += [one for node in nodes for one in _slugs_of_table(node, constants)]
    return [constants.get(ast.unparse(one), one) for one in expressions]


def _slugs(trees: list[ast.Module]) -> set[str]:
    parts = [part for one in _all_expressions(trees) for part in ast.walk(one)]
    texts = [one.value for one in parts if isinstance(one, ast.Constant)]
    return {text for text in texts if isinstance(text, str) and SLUG.fullmatch(text)}


def _documented() -> list[str]:
    text = (REPOSITORY / "docs" / "messages.md").read_text()
    return re.findall(r"^### `([^`]+)`$", text, re.MULTILINE)


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def test_slugs_are_found_in_every_form() -> None:
    """The search below sees keywords, positions, fields, dictionaries, choices, constants and tables."""
    source = """
def miss(self, slug, reason): pass
class Signal:
    name: str
    slug: str
KEPT = "by-constant"
TABLE = (("io", "by-table"), ("fd", "by-table-too"))
for path, slug in TABLE: miss(slug, "")
miss("by-position", 1); Signal("x", "by-field"); Error(slug="by-keyword"); {"slug": "by-dict"}
other.miss("left-one" if x else "right-one", ""); miss(KEPT, ""); miss(slug, "not-a-slug")
"""

    assert _slugs([ast.parse(source)]) == {
        "by-position", "by-field", "by-keyword", "by-dict", "left-one", "right-one", "by-constant",
        "by-table", "by-table-too",
    }  # fmt: skip


def test_slugs_are_written_out() -> None:
    """A slug that is put together cannot be searched for, neither by a person nor by this test."""
    expressions = _all_expressions([_parse(path) for path in SOURCES])

    put_together = [
        one for one in expressions if isinstance(one, ast.BinOp | ast.JoinedStr)
    ]
    assert [ast.unparse(one) for one in put_together] == []


def test_messages_document_exactly_the_slugs_in_use() -> None:
    """No slug without an entry, no entry without a slug."""
    used = _slugs([_parse(path) for path in SOURCES])

    assert used == set(_documented())


def test_messages_stand_in_order_and_once() -> None:
    """An entry is found where the alphabet says."""
    entries = _documented()

    assert entries == sorted(set(entries))

"""The documents say what is: commands that exist, every word of a verdict, no trace of a developer's machine."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from whyidle.model.findings import Activity, Limit, Regime

DOCUMENTS = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
COMMAND = re.compile(r"(?:`|^\$ )whyidle ([a-z]+)\b", re.MULTILINE)


def _commands_of_cli() -> set[str]:
    result = subprocess.run(
        [sys.executable, "-m", "whyidle", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(
        re.findall(r"^\s+(?:whyidle )?([a-z]+)\s{2,}\S", result.stdout, re.MULTILINE)
    )


def _words_under(heading: str) -> list[str]:
    """Give the code words that lead the rows of the glossary's table under a heading."""
    text = (REPOSITORY / "docs" / "glossary.md").read_text()
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_document_names_commands_that_exist(path: Path) -> None:
    """What a reader is told to type is there."""
    assert set(COMMAND.findall(path.read_text())) <= _commands_of_cli()


def test_readme_names_every_command() -> None:
    """No command is left for a reader to discover by accident."""
    assert (
        set(COMMAND.findall((REPOSITORY / "README.md").read_text())) == _commands_of_cli()
    )


@pytest.mark.parametrize(
    ("heading", "values"),
    [("Limits", Limit), ("Activities", Activity), ("Regimes", Regime)],
    ids=["limits", "activities", "regimes"],
)
def test_glossary_lists_the_closed_sets(
    heading: str, values: type[Limit | Activity | Regime]
) -> None:
    """Each word that a verdict may use is explained, and no other is listed beside it."""
    assert _words_under(heading) == [value.value for value in values]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_document_links_lead_somewhere(path: Path) -> None:
    """Every relative link points to a file of the repository."""
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text())

    assert [link for link in links if not (path.parent / link).exists()] == []


def test_tracked_files_name_no_machine_of_a_developer() -> None:
    """Neither this checkout's folder, nor the home folder, nor the host name is in any tracked file."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    traces = [f"{REPOSITORY}/", f"{Path.home()}/"]
    host = socket.gethostname()
    if len(host) > 8 or "-" in host:  # a short name may be a word
        traces.append(host)

    found = {
        name: trace
        for name in listed.stdout.decode().split("\0")
        if name and (REPOSITORY / name).is_file()
        for trace in traces
        if trace.encode() in (REPOSITORY / name).read_bytes()
    }

    assert found == {}

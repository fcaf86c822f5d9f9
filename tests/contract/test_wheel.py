"""What a person installs: one wheel, both packages, working where the repository is not."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built here without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    options = [
        "--no-deps",
        "--no-build-isolation",
        "--quiet",
        "--disable-pip-version-check",
    ]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "-w", folder, REPOSITORY],
        check=True,
    )
    return next(folder.glob("whyidle-*.whl"))


def test_wheel_holds_both_packages(wheel: Path) -> None:
    """Every source file is in the wheel, the agent's sitecustomize and the demo's training included."""
    sources, examples = REPOSITORY / "src", REPOSITORY / "examples"
    expected = {str(path.relative_to(sources)) for path in sources.rglob("*.py")}
    demo = (examples / "polygon_segmentation").glob("*.py")
    expected |= {f"whyidle/examples/{path.relative_to(examples)}" for path in demo}

    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.endswith(".py")}

    assert held == expected
    assert "whyidle_agent/inject/sitecustomize.py" in held


def test_wheel_asks_for_no_torch(wheel: Path) -> None:
    """`pip install whyidle` stays light."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(
            one for one in archive.namelist() if one.endswith(".dist-info/METADATA")
        )
        lines = archive.read(name).decode().splitlines()

    required = [
        line
        for line in lines
        if line.startswith("Requires-Dist") and "extra ==" not in line
    ]
    assert sorted(line.split()[1].partition(">")[0] for line in required) == [
        "numpy",
        "polars",
        "rich",
    ]


def test_wheel_works_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere, it shows its help and finds the agent that it would inject."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = (
        "import sys, pathlib\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import whyidle, whyidle_agent, whyidle.commands\n"
        "print(whyidle.__file__); print(whyidle_agent.__file__)\n"
        "whyidle.commands.main(['--help'])\n"
    )

    result = subprocess.run(
        [sys.executable, "-I", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    whyidle_file, agent_file, *help_lines = result.stdout.splitlines()
    assert whyidle_file.startswith(str(tmp_path))
    assert agent_file.startswith(str(tmp_path))
    assert any("run" in line for line in help_lines)

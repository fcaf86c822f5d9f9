"""An environment for each tool that is installed only for the bench: .venvs/bench-NAME, beside the training's own.

They see the packages of the training's environment, so torch is not installed again; nothing of theirs is seen there.
`make bench-tools` makes them; the versions are those of the extra `bench` in pyproject.toml.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from scenarios.truth import FOLDER

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = FOLDER.parent
VENVS = ROOT / ".venvs"
PARENT_FILE = "bench-parent.pth"


def requirements() -> dict[str, str]:
    """Give what the extra `bench` asks for: name → requirement."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extra = table["project"]["optional-dependencies"]["bench"]
    return {re.split(r"[\[=]", it)[0]: it for it in extra}


def folder_of(name: str) -> Path:
    """Give the environment of a tool."""
    return VENVS / f"bench-{name}"


def binary_of(name: str, program: str) -> Path:
    """Give a program of a tool's environment."""
    return folder_of(name) / "bin" / program


def missing(name: str, program: str) -> str | None:
    """Say why a tool cannot be used; None when it can."""
    if binary_of(name, program).exists():
        return None
    reason = folder_of(name) / "failure.txt"
    if reason.exists():
        return reason.read_text(encoding="utf-8").strip()
    return "not installed: run `make bench-tools`"


def version_of(name: str) -> str:
    """Give the version that is asked for."""
    return requirements()[name].partition("==")[2]


def install(name: str, requirement: str) -> bool:
    """Make the environment of a tool; False, with the reason kept, when that fails."""
    folder = folder_of(name)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (reason := folder / "failure.txt").unlink(missing_ok=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / PARENT_FILE).write_text(sysconfig.get_paths()["purelib"] + "\n")
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet"]
    done = subprocess.run(
        [*pip, "--disable-pip-version-check", requirement],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        reason.write_text(f"pip could not install {requirement}: {lines[-1]}\n")
    return done.returncode == 0


def install_all() -> int:
    """Install every tool that is absent."""
    failed = 0
    for name, requirement in requirements().items():
        if any(folder_of(name).glob("lib/python*/site-packages/*.dist-info")):
            print(f"{name}: is there")
            continue
        ready = install(name, requirement)
        failed += not ready
        print(f"{name}: {'installed' if ready else missing(name, 'no-such-program')}")
    return 1 if failed else 0

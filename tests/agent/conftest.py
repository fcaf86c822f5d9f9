"""Interpreters of every supported version, and a way to run code in them under the agent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.agent.decoding import Decoded, decode_file
from whyidle_agent import wire

SOURCE = Path(__file__).parents[2] / "src"
VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")


def find_interpreter(version: str) -> str | None:
    """Path of a CPython of this version: the one that runs the tests, pyenv's, or one on PATH."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for path in sorted(root.glob(f"versions/{version}.*/bin/python")):
        return str(path)
    on_path = shutil.which(f"python{version}")
    # A shim of pyenv stands on PATH for versions that are not active, too.
    return None if on_path is None or "shims" in Path(on_path).parts else on_path


class Target:
    """Runs code as a target of the agent would run, in one interpreter."""

    def __init__(self, executable: str, folder: Path) -> None:
        self.executable = executable
        self.folder = folder
        self.run_dir = folder / "run"
        self.run_dir.mkdir()
        self.inject = SOURCE / "whyidle_agent" / "inject"
        self.path: list[Path] = []

    def environment(self, *, observed: bool = True, **extra: str) -> dict[str, str]:
        """The environment of a run: the tester's own, and the agent's if it is observed."""
        dropped = (
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "WHYIDLE_RUN_DIR",
            "WHYIDLE_STEPS",
            "COVERAGE_PROCESS_START",
        )
        env = {name: value for name, value in os.environ.items() if name not in dropped}
        path = [self.inject, *self.path] if observed else self.path
        if path:
            env["PYTHONPATH"] = os.pathsep.join(map(str, path))
        if observed:
            env[wire.ENV_RUN_DIR] = str(self.run_dir)
        env.update(extra)
        return env

    def script(self, code: str, name: str = "target.py") -> Path:
        """Write a script."""
        path = self.folder / name
        path.write_text(textwrap.dedent(code))
        return path

    def start(
        self, code: str, *flags: str, observed: bool = True, **extra: str
    ) -> subprocess.Popen:
        """Start a script and return at once; the caller ends it."""
        command = [self.executable, *flags, str(self.script(code))]
        env = self.environment(observed=observed, **extra)
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=env, cwd=self.folder, stdout=pipe, stderr=pipe, text=True
        )

    def run(
        self, code: str, *flags: str, observed: bool = True, **extra: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a script to its end."""
        process = self.start(code, *flags, observed=observed, **extra)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def output(self, code: str, *flags: str, **extra: str) -> str:
        """Run a script that must succeed without a word on stderr; return its output."""
        done = self.run(code, *flags, **extra)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def journals(self) -> list[Decoded]:
        """The journals of the run, in order of creation."""
        paths = (self.run_dir / "journals").glob("*.journal")
        return [
            decode_file(path)
            for path in sorted(paths, key=lambda one: one.name.split("-")[2])
        ]

    def journal(self) -> Decoded:
        """The one journal of the run."""
        (journal,) = self.journals()
        return journal

    def booted(self) -> list[int]:
        """Pids of the interpreters in which the agent came up."""
        return sorted(int(path.name) for path in (self.run_dir / "booted").glob("*"))


@pytest.fixture(params=VERSIONS)
def interpreter(request: pytest.FixtureRequest) -> str:
    """Path of a CPython, each supported version in turn."""
    path = find_interpreter(request.param)
    if path is None:
        pytest.skip(f"no CPython {request.param} on this machine")
    return path


@pytest.fixture
def target(interpreter: str, tmp_path: Path) -> Target:
    """A target in each interpreter in turn."""
    return Target(interpreter, tmp_path)


@pytest.fixture
def own_target(tmp_path: Path) -> Target:
    """A target in the interpreter that runs the tests: for what does not depend on the version."""
    return Target(sys.executable, tmp_path)


STUB_TORCH = {
    "__init__.py": """
        __version__ = "0.stub"
        from torch import autograd, cuda, optim, serialization
        from torch.serialization import save
    """,
    "autograd.py": "def backward(*tensors): return 'gradient'",
    "cuda.py": """
        def is_initialized(): return False
        def synchronize(device=None): return None
    """,
    "serialization.py": "def save(obj, f): return 'saved'",
    "optim/__init__.py": """
        class Optimizer: pass
        class SGD(Optimizer):
            def step(self): return 'stepped'
    """,
    "utils/__init__.py": "",
    "utils/data/__init__.py": "from torch.utils.data.dataloader import DataLoader",
    "utils/data/dataloader.py": """
        class DataLoader: pass
        def work(number): return number + 1
    """,
}
"""Just enough of torch for the hooks, in interpreters that have no torch."""


@pytest.fixture
def stub_torch(tmp_path: Path) -> Path:
    """A folder with a package `torch` for the target's path."""
    for name, code in STUB_TORCH.items():
        path = tmp_path / "stub" / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(code))
    return tmp_path / "stub"

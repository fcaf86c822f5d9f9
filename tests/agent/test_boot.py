"""The agent comes up beside whatever the interpreter already does at its start."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.agent.conftest import SOURCE, Target

SHADOWED = {
    "none": None,
    "prints": "print('theirs', __file__)",
    "fails": "raise ValueError('theirs')",
    "misses a module": "import no_such_module",
    "exits": "import sys; sys.exit(3)",
    "replaces itself": "import sys; sys.modules[__name__] = sys",
}
REPORT = """
    import json, sys
    module = sys.modules.get("sitecustomize")
    print(json.dumps([sys.path[1:], sys.argv, getattr(module, "__file__", repr(module))]))
"""


@pytest.mark.parametrize("shadowed", SHADOWED)
def test_sitecustomize_of_target_when_shadowed(target: Target, shadowed: str) -> None:
    """The shadowed sitecustomize, and its failure, looks exactly as it does without the agent."""
    theirs = target.folder / "theirs"
    theirs.mkdir()
    if SHADOWED[shadowed] is not None:
        (theirs / "sitecustomize.py").write_text(SHADOWED[shadowed])
    target.path = [theirs]

    plain = target.run(REPORT, observed=False)
    observed = target.run(REPORT)

    assert (observed.returncode, observed.stdout) == (plain.returncode, plain.stdout)
    # Of a fatal error the traceback shows our frames as well; what is said is the same.
    assert observed.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]
    assert len(target.booted()) == 1


def test_agent_when_no_run_folder_is_named(target: Target) -> None:
    """Without a run folder nothing of the agent is loaded."""
    code = "import sys; print([name for name in sys.modules if 'whyidle' in name])"

    assert target.output(code, WHYIDLE_RUN_DIR="") == "[]\n"


def test_agent_when_booted(target: Target) -> None:
    """The agent is importable, leaves its sign, and reads neither torch nor anything heavy."""
    code = """
        import os, sys
        import whyidle_agent
        heavy = {"torch", "mmap", "importlib.util", "whyidle_agent.writer", "whyidle_agent.wire"}
        print(os.getpid(), sorted(heavy & set(sys.modules)))
    """

    pid, loaded = target.output(code, "-B").split(maxsplit=1)

    assert target.booted() == [int(pid)]
    assert loaded == "[]\n"


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_target_when_interpreter_is_isolated(target: Target, flag: str) -> None:
    """An isolated interpreter runs as ever, and the missing sign tells the launcher."""
    assert target.output("print('runs')", flag) == "runs\n"

    assert target.booted() == []


@pytest.mark.parametrize(
    "broken", ["raise RuntimeError('ours')", "def (", "import no_such_module"]
)
@pytest.mark.parametrize("module", ["boot.py", "hooks.py", "__init__.py"])
def test_target_when_agent_is_broken(target: Target, module: str, broken: str) -> None:
    """A crash of the agent itself leaves no trace in the target."""
    copy = target.folder / "whyidle_agent"
    shutil.copytree(
        SOURCE / "whyidle_agent", copy, ignore=shutil.ignore_patterns("__pycache__")
    )
    (copy / module).write_text(broken)
    target.inject = copy / "inject"
    code = """
        import sys
        print([name for name in sys.modules if "whyidle" in name])
        print([finder for finder in sys.meta_path if "whyidle" in repr(finder) or "Agent" in repr(finder)])
    """

    assert target.output(code) == "[]\n[]\n"


def test_journal_when_nothing_is_recorded(target: Target) -> None:
    """An interpreter that never trains leaves a sign and no journal."""
    target.output("import json, subprocess")

    assert target.journals() == []


def test_children_when_target_starts_interpreters(target: Target) -> None:
    """Children of the target are observed as well, through the environment that they inherit."""
    code = """
        import os, subprocess, sys
        child = [sys.executable, "-c", "import os; print(os.getpid())"]
        print(os.getpid(), int(subprocess.check_output(child)))
    """

    pids = [int(word) for word in target.output(code).split()]

    assert target.booted() == sorted(pids)


def test_target_when_run_folder_is_gone(target: Target) -> None:
    """A run folder that does not exist changes nothing in the target."""
    target.run_dir.rmdir()

    assert target.output("print('runs')") == "runs\n"


def test_old_interpreter_when_injected(tmp_path: Path) -> None:
    """Pythons older than ours, down to 2.7, start without a word."""
    found = sorted((Path.home() / ".pyenv/versions").glob("[23].[67].*/bin/python"))
    if not found:
        pytest.skip("no Python older than 3.8 on this machine")
    target = Target(str(found[0]), tmp_path)

    for path in found:
        command = [str(path), "-c", "print('runs')"]
        done = subprocess.run(
            command, env=target.environment(), capture_output=True, check=True
        )
        assert (done.stdout, done.stderr) == (b"runs\n", b"")
    assert target.booted() == []

"""What every test may rely on: markers that skip by themselves, and that a test leaves nothing behind."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REPOSITORY = Path(__file__).resolve().parent.parent
HELPER_PROCESSES = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Processes that the standard library keeps until the interpreter ends."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden`: write what is there now, to be read in the diff."""
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file of tests/golden, or write that file."""

    def check(name: str, text: str) -> None:
        path = REPOSITORY / "tests" / "golden" / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return check


def _has_gpu() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot run here, with the reason."""
    absent = {
        "root": None if os.geteuid() == 0 else "needs root",
        "torch": None if importlib.util.find_spec("torch") else "torch is not installed",
    }
    if any(item.get_closest_marker("gpu") for item in items):
        absent["gpu"] = None if _has_gpu() else "needs a CUDA device"
    for item in items:
        for name, reason in absent.items():
            if reason and item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def _leaves_the_process_as_it_was() -> Iterator[None]:
    """Fail a test that leaks our environment variables, import hooks or threads."""
    hooks, threads = list(sys.meta_path), set(threading.enumerate())
    environment = _own_environment()

    yield

    assert _own_environment() == environment
    assert sys.meta_path == hooks
    for thread in set(threading.enumerate()) - threads:
        thread.join(timeout=5)
        assert not thread.is_alive(), f"left running: {thread!r}"


def _own_environment() -> dict[str, str]:
    names = ("WHYIDLE_", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name.startswith(names)}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session when processes that tests started are still there."""
    left = _child_command_lines()
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        sys.stderr.write("\nleft running by tests:\n  " + "\n  ".join(left) + "\n")


def _child_command_lines() -> list[str]:
    own_pid, found = str(os.getpid()), []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent_pid = stat.read_text().rpartition(")")[2].split()[1]
            command_line = (
                stat.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode()
            )
        except OSError:
            continue
        if parent_pid == own_pid and not any(
            one in command_line for one in HELPER_PROCESSES
        ):
            found.append(
                f"{stat.parent.name} {command_line or '(ended, never waited for)'}"
            )
    return found

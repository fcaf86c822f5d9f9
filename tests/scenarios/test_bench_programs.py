"""What the bench puts in front of a script changes one thing and leaves the script as it is."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.bench.programs import slowed
from scenarios.bench.programs.slowed import decorated, longer

SCRIPT = """
import sys

class Rows:
    def read(self):
        return 1

if __name__ == "__main__":
    print(Rows().read(), sys.argv[1:], Rows.__module__, __file__.endswith("train.py"))
"""


def test_a_longer_function_gives_the_same_result() -> None:
    """Arguments, result and exceptions pass through."""
    assert longer(lambda x, *, y: x + y, by=1.0)(1, y=2) == 3
    with pytest.raises(ZeroDivisionError):
        longer(lambda: 1 / 0, by=1.0)()


def test_a_blocked_function_sleeps_on_and_a_computing_one_computes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each kind of time is made longer by its own kind."""
    now = {"cpu": 0.0, "wall": 0.0}
    slept: list[float] = []

    def compute(_numbers: object) -> None:
        now["cpu"] += 0.01
        now["wall"] += 0.01

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now["wall"] += seconds + 0.003  # as a kernel does: a little too long

    def work() -> None:
        now["cpu"] += 0.2
        now["wall"] += 1.2

    monkeypatch.setattr(slowed.time, "thread_time", lambda: now["cpu"])
    monkeypatch.setattr(slowed.time, "monotonic", lambda: now["wall"])
    monkeypatch.setattr(slowed.time, "sleep", sleep)
    monkeypatch.setattr(slowed, "queued_s", lambda: 0.0)
    monkeypatch.setattr(slowed, "sum", compute, raising=False)
    slower = longer(work, by=0.5)

    slower()
    slower()

    assert now["cpu"] == pytest.approx(2 * 0.2 * 1.5, abs=0.011)
    assert slept == [
        pytest.approx(0.5),
        pytest.approx(0.497),
    ]  # what was too long is taken off


def test_items_of_a_generator_pass_through() -> None:
    """A sampler's `__iter__` is made longer item by item."""

    def numbers() -> object:
        yield from range(3)

    assert list(longer(numbers, by=0.0)()) == [0, 1, 2]


def test_only_the_named_function_is_decorated() -> None:
    """Methods as well; a name that is not there is an error, not a run that measures nothing."""
    tree = decorated(ast.parse(SCRIPT), "read")

    marked = [it for it in ast.walk(tree) if getattr(it, "decorator_list", None)]
    assert [it.name for it in marked if isinstance(it, ast.FunctionDef)] == ["read"]
    with pytest.raises(ValueError, match="no function 'write'"):
        decorated(ast.parse(SCRIPT), "write")


@pytest.mark.parametrize("options", [["--function=read", "--by=0.1"], []])
def test_script_runs_as_its_own_main_program(tmp_path: Path, options: list[str]) -> None:
    """It sees its own arguments, name and file."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, slowed.__file__, *options, str(script), "--workers=2"]

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "1 ['--workers=2'] __main__ True"


@pytest.mark.torch
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_workers": 1}, (1, 3)),
        ({"num_workers": 0}, (0, None)),
        ({"prefetch_factor": 8}, (2, 8)),
    ],
)
def test_loaders_get_other_arguments(
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, int],
    expected: tuple[int, int | None],
) -> None:
    """What makes no sense without workers is left out, as a person would."""
    from torch.utils.data import DataLoader

    monkeypatch.setattr(DataLoader, "__init__", DataLoader.__init__)  # put back afterwards
    slowed.change_loaders(changes)

    loader = DataLoader(
        list(range(8)), 2, num_workers=2, prefetch_factor=3, persistent_workers=True
    )

    assert (loader.num_workers, loader.prefetch_factor) == expected
    assert loader.batch_size == 2

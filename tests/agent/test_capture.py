"""Real inputs and outputs of a function are kept, in workers and without them, and nothing of the training changes."""

from __future__ import annotations

import json
import pickle
import subprocess
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.agent.conftest import SOURCE, Target
from tests.agent.loaders import PYTHON
from whyidle.store.captures import ENV_CAPTURE, find_capture, parse_function_name
from whyidle.trial.proving import Request, replay
from whyidle_agent import capture

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torch

PARTS = """
import functools, random

def scale(values, factor): return [value * factor for value in values]
def shift(values): values[0] += 1; return values
def draw(values): return values[0] + random.random()
def broken(callback): return callback()
def write(path):
    with open(path, "w") as file: file.write("x")
def stream(values):
    yield from values
@functools.lru_cache(maxsize=None)
def cached(number): return number
"""
TRAINING = """
import hashlib, pickle, random, sys
import torch
from torch.utils.data import DataLoader, Dataset
from parts import broken, cached, draw, scale, shift, stream, write

class Data(Dataset):
    offset = 3
    def __len__(self): return 48
    def __getitem__(self, index):
        values = [float(index), 2.0]
        numbers = scale(values, factor=2) + shift(values) + [draw(values)]
        numbers += [broken(lambda: 1.0), *stream(values), float(cached(index % 4))]
        write("written.txt")
        return self.add(torch.tensor(numbers)), own(index)
    def add(self, tensor): return tensor[::2] + self.offset + torch.rand(())

def own(index): return index * 2

if __name__ == "__main__":
    workers, start = int(sys.argv[1]), sys.argv[2]
    torch.manual_seed(1); random.seed(1)
    loader = DataLoader(
        Data(), batch_size=4, num_workers=workers, shuffle=True,
        multiprocessing_context=start if workers else None,
    )
    digest = hashlib.sha256()
    for epoch in range(2):
        for tensor, index in loader:
            digest.update(tensor.numpy().tobytes() + index.numpy().tobytes())
    digest.update(torch.rand(8).numpy().tobytes() + repr(random.random()).encode())
    print(digest.hexdigest())
"""
SPECS = (
    "parts.py:scale",
    "parts.py:shift",
    "parts.py:draw",
    "parts.py:broken",
    "parts.py:write",
    "parts.py:stream",
    "parts.py:cached",
    "target.py:Data.add",
    "target.py:own",
)


class Captured(NamedTuple):
    """What was kept of one function."""

    summaries: list[dict[str, Any]]
    records: list[dict[str, Any]]

    def total(self, name: str) -> int:
        """A count, over all slots."""
        return sum(summary[name] for summary in self.summaries)


def train(folder: Path, workers: int, start: str, **extra: str) -> tuple[str, Target]:
    """Run the training; give what it printed."""
    target = Target(PYTHON, folder)
    (folder / "parts.py").write_text(PARTS)
    command = [target.executable, str(target.script(TRAINING)), str(workers), start]
    done = subprocess.run(
        command,
        env=target.environment(observed=bool(extra), **extra),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout, target


def captured_of(target: Target, spec: str) -> Captured:
    """Read what was kept of a function."""
    name = spec.rpartition(":")[2]
    (folder,) = (target.run_dir / "capture").glob(f"*-{name}")
    summaries = [json.loads(path.read_bytes()) for path in folder.glob("*/summary.json")]
    records = [
        pickle.loads(path.read_bytes()) for path in sorted(folder.glob("*/*.pickle"))
    ]
    return Captured(summaries, records)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """What the training prints when nothing is kept, for each number of workers."""
    counts = (0, 2)
    return {one: train(tmp_path_factory.mktemp("plain"), one, "fork")[0] for one in counts}


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """A training without workers, of which everything was to be kept."""
    folder = tmp_path_factory.mktemp("serial")
    return train(folder, 0, "none", **{ENV_CAPTURE: "\n".join(SPECS)})[1]


@pytest.mark.parametrize(
    ("workers", "start"), [(2, "fork"), (2, "spawn"), (0, "none")], ids=lambda one: str(one)
)
def test_training_is_the_same_and_its_calls_are_kept(
    workers: int, start: str, plain: dict[int, str], tmp_path: Path
) -> None:
    """Every kind of function, in workers however started and in a loop without: the same bits, and all calls."""
    kept, target = train(tmp_path, workers, start, **{ENV_CAPTURE: "\n".join(SPECS)})

    assert kept == plain[workers]
    scale = captured_of(target, "parts.py:scale")
    slots = max(workers, 1)
    assert len(scale.summaries) == slots
    assert scale.total("calls") == len(scale.records) == 96
    assert pickle.loads(scale.records[0]["inputs"])[1] == {"factor": 2}
    assert len(captured_of(target, "target.py:own").records) == 96
    assert len(captured_of(target, "target.py:Data.add").records) == 96
    # Behind a cache only the calls that miss it are calls.
    assert captured_of(target, "parts.py:cached").total("calls") == 4 * slots * (
        2 if workers else 1
    )


def test_what_a_call_changes_is_noted(serial: Target) -> None:
    """Arguments changed in place, random numbers drawn, files written: each is said, and inputs are those before."""
    shift = captured_of(serial, "parts.py:shift").records[0]
    (values,), _ = pickle.loads(shift["inputs"])
    assert shift["changed"] is True
    assert values[0] + 1 == pickle.loads(shift["output"])[0]
    draw = captured_of(serial, "parts.py:draw").records[0]
    assert (draw["changed"], set(draw["random"])) == (False, {"python"})
    assert captured_of(serial, "parts.py:write").records[0]["effects"] == [
        "writes files or pipes"
    ]
    assert set(captured_of(serial, "target.py:Data.add").records[0]["random"]) == {"torch"}


@pytest.mark.parametrize("spec", ["parts.py:draw", "target.py:Data.add"])
def test_kept_calls_give_again_what_they_gave(spec: str, serial: Target) -> None:
    """Random numbers of Python and of torch come again, and a class of the script is found without training."""
    kept = find_capture(serial.run_dir, parse_function_name(spec))

    found = replay(
        Request(capture=kept, new=kept.name, processes=1, rtol=0.0, atol=0.0, seconds=1e-6),
        say=lambda _: None,
    )

    assert found.capture.checked == found.capture.drew_random == 96
    assert (found.not_reproduced.count, found.different.count) == (0, 0)


def test_what_cannot_be_kept_is_counted(serial: Target) -> None:
    """A lambda among the arguments is a reason with a count; a generator is refused as a whole."""
    broken = captured_of(serial, "parts.py:broken")
    ((reason, count),) = broken.summaries[0]["refused"].items()
    assert broken.records == []
    assert "lambda" in reason
    assert count == capture.MAX_REFUSED_IN_A_ROW
    assert list((serial.run_dir / "capture").glob("*-stream")) == []


def test_kept_calls_stay_bounded_and_even(own_target: Target) -> None:
    """Of many calls about 200 stay, evenly spread from the first to the last."""
    code = """
    import sys
    sys.path.insert(0, {source!r})
    import os
    from whyidle_agent import capture
    def double(number): return number * 2
    capture.start(os.environ["WHYIDLE_RUN_DIR"])
    capture.look()
    for number in range(5000): assert double(number) == number * 2
    """
    text = textwrap.dedent(code).format(source=str(SOURCE))
    own_target.output(text, **{ENV_CAPTURE: "target.py:double"})

    kept = captured_of(own_target, "target.py:double")
    numbers = [record["call"] for record in kept.records]
    assert capture.MAX_KEPT / 4 <= len(numbers) <= capture.MAX_KEPT
    assert numbers == list(range(0, 5000, kept.summaries[0]["stride"]))


def test_compiled_function_is_left_alone(own_target: Target) -> None:
    """What keeps a function in order to compile it gets the function as it is, and the note says why."""
    code = """
    import sys
    sys.path.insert(0, {source!r})
    import os
    from whyidle_agent import capture, writer
    class Dispatcher:
        def __init__(self, function): self.__wrapped__ = function
        def __call__(self, number): return self.__wrapped__.__code__.co_argcount
    @Dispatcher
    def compiled(number): return number
    notes = []
    writer.note = lambda slug, text: notes.append((slug, text))
    capture.start(os.environ["WHYIDLE_RUN_DIR"])
    capture.look()
    print(compiled(3), notes)
    """
    text = textwrap.dedent(code).format(source=str(SOURCE))
    printed = own_target.output(text, **{ENV_CAPTURE: "target.py:compiled"})

    assert printed.startswith("1 [('capture-failed', ")
    assert "is a Dispatcher, not a plain Python function" in printed


def test_capture_works_under_every_interpreter(target: Target) -> None:
    """The code of methods, closures and functions with defaults is swapped without a difference."""
    code = """
    import sys
    sys.path.insert(0, {source!r})
    import os
    from whyidle_agent import capture
    def make():
        base = 5
        class Parent:
            def value(self): return 1
        class Child(Parent):
            def value(self, a, b=2, *, c=3): return super().value() + a + b + c + base
        return Child
    Child = make()
    before = Child.value
    capture.start(os.environ["WHYIDLE_RUN_DIR"])
    capture.look()
    assert Child.value is before
    print(Child().value(1), Child().value(1, c=4))
    try: Child().value()
    except TypeError as error: print("value() missing 1 required" in str(error))
    """
    text = textwrap.dedent(code).format(source=str(SOURCE))
    printed = target.output(text, **{ENV_CAPTURE: "target.py:Child.value"})

    assert printed == "12 13\nTrue\n"
    summary = captured_of(target, "target.py:Child.value").summaries[0]
    # Its class is local: the calls pass, and the reason that they cannot be kept is counted.
    assert sum(summary["refused"].values()) >= 2

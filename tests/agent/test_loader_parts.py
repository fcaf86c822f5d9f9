"""The small parts behind the loader's records: weighing, placing, wrapping, cleaning texts."""

from __future__ import annotations

import gc
import inspect
import pickle
import types
import warnings
from collections import namedtuple
from typing import Any

import pytest

from tests.agent.conftest import Target
from whyidle_agent import fetching, patching, payload, places, wire, writer

PAIR = namedtuple("PAIR", "left right")


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is noted in the test."""
    noted: list[tuple[str, str]] = []
    monkeypatch.setattr(writer, "note", lambda slug, text: noted.append((slug, text)))
    return noted


@pytest.mark.torch
def test_weigh_batch_of_many_kinds() -> None:
    """Tensors and arrays weigh their bytes; anything else is a leaf without weight."""
    import numpy as np
    import torch

    batch = {
        "image": torch.zeros(2, 3),
        "pair": PAIR(np.zeros(5, dtype=np.int16), torch.zeros(4, dtype=torch.float64)),
        "texts": ["one", b"two", None],
        "object": object(),
    }

    assert payload.weigh(batch) == (24 + 10 + 32, 3, 7, True)


@pytest.mark.torch
def test_weigh_subclass_runs_none_of_its_code() -> None:
    """A subclass of tensor is weighed without its own __torch_function__."""
    import torch

    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError

    assert payload.weigh([torch.zeros(3).as_subclass(Loud)]) == (12, 1, 1, True)


@pytest.mark.parametrize(("count", "whole"), [(256, True), (257, False), (5000, False)])
def test_weigh_batch_of_many_leaves(count: int, whole: bool) -> None:
    """Beyond 256 leaves the rest of a batch is not looked at, and that is said."""
    weight = payload.weigh([list(range(count // 2)), tuple(range(count - count // 2))])

    assert weight == (0, 0, min(count, 256), whole)


def test_weigh_batch_that_contains_itself() -> None:
    """A batch without end is looked at for a while."""
    batch: list[Any] = []
    batch.append(batch)

    assert payload.weigh(batch)[3] is False


def module_with(function: Any) -> types.ModuleType:
    """A module that defines `work`."""
    module = types.ModuleType("stand_in")
    module.work = function  # type: ignore[attr-defined]
    return module


def doubled(original: Any) -> Any:
    """A wrapper that shows in the result."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return 2 * original(*args, **kwargs)

    return wrapper


def work(one: int, other: int = 3) -> int:
    """Work."""
    return one + other


def test_patch_of_expected_function(notes: list[tuple[str, str]]) -> None:
    """A function of the expected shape is wrapped once, under its own name and signature."""
    module = module_with(work)

    assert patching.patch("work", module, "work", ("one",), doubled)
    assert patching.patch("work", module, "work", ("one",), doubled)

    wrapped = module.work
    assert (wrapped(1), wrapped.__name__, wrapped.__doc__) == (8, "work", "Work.")
    assert inspect.getfullargspec(wrapped) == inspect.getfullargspec(work)
    assert notes == []


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (None, "there is none"),
        (len, "is 'builtin_function_or_method', no function"),
        (lambda: None, "takes (), expected (one)"),
        (lambda *one: None, "takes (), expected (one)"),
        (lambda other, one: None, "takes (other, one), expected (one)"),
    ],
)
def test_patch_of_surprising_function(
    notes: list[tuple[str, str]], function: Any, reason: str
) -> None:
    """Anything else is left as it is, and a note says why."""
    module = module_with(function)

    assert not patching.patch("work", module, "work", ("one",), doubled)

    assert module.work is function
    assert notes == [("patch-failed", f"work: {reason}")]


def test_patch_without_owner(notes: list[tuple[str, str]]) -> None:
    """A class that does not exist is noted like any other surprise."""
    assert not patching.patch("work", None, "work", ("one",), doubled)
    assert [slug for slug, _ in notes] == ["patch-failed"]


def test_wrapper_that_cannot_be_made(notes: list[tuple[str, str]]) -> None:
    """When making the wrapper fails, the function stays."""

    def refuse(original: Any) -> Any:
        raise ValueError("no")

    module = module_with(work)

    assert not patching.patch("work", module, "work", ("one",), refuse)
    assert module.work is work
    assert notes == [("patch-failed", "work: ValueError('no')")]


def test_warning_through_a_wrapper_names_the_caller() -> None:
    """`stacklevel=2` leads past a wrapper to the line that called it."""

    def warn() -> None:
        warnings.warn("look up", stacklevel=2)

    def wrap(original: Any) -> Any:
        return lambda: original()

    wrapped = patching.disguised(wrap(warn), warn)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wrapped()

    assert caught[0].filename == __file__


def test_identity_map_forgets_with_the_object() -> None:
    """Equal objects are kept apart, hash and equality are never called, and nothing is kept alive."""

    class Unhashable:
        def __eq__(self, other: object) -> bool:
            raise AssertionError

        __hash__ = None  # type: ignore[assignment]

    known = patching.IdentityMap()
    first, second = Unhashable(), Unhashable()
    known.set(first, 1)
    known.set(second, 2)
    assert (known.get(first), known.get(second), known.get(object())) == (1, 2, None)

    del first
    gc.collect()

    assert known.values() == [2]


def test_place_of_own_code_before_libraries() -> None:
    """The person's line is named even when a library made the call."""
    namespace: dict[str, Any] = {}
    code = "def through(function): return function()"
    exec(compile(code, "/x/site-packages/library.py", "exec"), namespace)

    place = namespace["through"](places.calling_place)

    line = inspect.currentframe().f_lineno - 2  # type: ignore[union-attr]
    assert place == (__file__, line)


def test_place_of_a_loop_behind_an_iterator() -> None:
    """The loop is named, not the `__iter__` that it went through."""

    class Through:
        def __iter__(self) -> Any:
            yield places.calling_place()

    (place,) = [one for one in Through()]  # noqa: C416

    assert place == (__file__, inspect.currentframe().f_lineno - 2)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ('  File "{ours}/fetching.py", line 3, in fetch\n    a\n    ^\n', False),
        ('  File "/x/data.py", line 3, in fetch\n    a\n', True),
        ("ValueError: {ours}/fetching.py\n", True),
    ],
)
def test_text_of_error_without_our_frames(line: str, kept: bool) -> None:
    """Frames of ours and their source lines go; all else stays."""
    line = line.format(ours=fetching.__file__.rpartition("/")[0])
    text = f'Traceback:\n{line}  File "/x/user.py", line 1, in f\n    b\nError: c\n'

    assert fetching.without_our_frames(text) == (text if kept else text.replace(line, ""))


def test_fetching_without_torch_patches_nothing(own_target: Target) -> None:
    """A loader module of another shape is left alone, with a note for each point."""
    stub = own_target.folder / "torch" / "utils" / "data"
    stub.mkdir(parents=True)
    for folder in (stub, stub.parent, stub.parent.parent):
        (folder / "__init__.py").write_text("")
    (stub / "_utils.py").write_text("class fetch: pass\nclass worker: pass\n")
    (stub / "dataloader.py").write_text(
        """
from torch.utils.data import _utils
class DataLoader:
    def __init__(self, data): self.data = data
class _BaseDataLoaderIter:
    def __next__(self, more): return 1
class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter): pass
class _SingleProcessDataLoaderIter(_BaseDataLoaderIter): pass
before = [dict(vars(one)) for one in (DataLoader, _BaseDataLoaderIter, _utils.fetch)]
"""
    )
    own_target.path.append(own_target.folder)

    out = own_target.output(
        """
        from torch.utils.data import dataloader as d
        now = [dict(vars(one)) for one in (d.DataLoader, d._BaseDataLoaderIter, d._utils.fetch)]
        print(now == d.before)
        """
    )

    journal = own_target.journal()
    notes = [journal.texts[one.a] for one in journal.of(wire.NOTE)]
    points = {note.partition(":")[0] for note in notes}
    assert out == "True\n"
    assert {"fetch", "worker-loop", "create", "reset", "receive", "index"} <= points
    assert {"build", "next"} <= points


def test_wrapper_pickles_by_name() -> None:
    """A wrapper in the place of its original is what its name leads to."""
    original = globals()["work"]
    try:
        assert patching.patch(
            "work", inspect.getmodule(inspect.currentframe()), "work", ("one",), doubled
        )
        wrapped = globals()["work"]
        assert wrapped.__qualname__ == original.__qualname__
        assert pickle.dumps(wrapped).find(b"work") >= 0
    finally:
        globals()["work"] = original

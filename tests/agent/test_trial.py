"""A trial's change is applied to the loaders it is meant for, or not at all; the training is not touched."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.loaders import Observed, line_of, observe
from whyidle_agent import trial, wire

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = frozenset(
    ("dataset", "num_workers", "prefetch_factor", "persistent_workers", "timeout")
)

TRAINING = """
    class Noisy(Numbers):
        def __getitem__(self, index):
            time.sleep(0.02 * (index == 0))
            return torch.full((3,), float(index)), index

    def train(loader, epochs=2):
        torch.manual_seed(3)
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(epochs):
            for values, _ in loader:  # loop
                optimizer.zero_grad()
                model(values).square().mean().backward()
                optimizer.step()
        return [parameter.tolist() for parameter in model.parameters()]

    if __name__ == "__main__":
        loader = DataLoader(Noisy(24), batch_size=4, num_workers=2)  # meant
        other = DataLoader(Numbers(8), batch_size=4)  # other
        print(train(loader))
        for _ in other: pass  # other loop
        print(loader.num_workers, loader.prefetch_factor, loader.in_order)
"""


def _run(
    folder: Path, wish: dict[str, Any], code: str = TRAINING, label: str = "meant"
) -> Observed:
    """Run the training with a change that is meant for one line."""
    script = folder / "target.py"
    place = {"file": str(script), "line": _line(code, label)} if label else {}
    return observe(folder, code, WHYIDLE_TRIAL=json.dumps(wish | place))


def _line(code: str, label: str) -> int:
    from tests.agent.loaders import DATA

    return line_of(DATA + code, label)


def _losses(observed: Observed) -> list[float]:
    rows = observed.main.of(wire.LOSS)
    assert [row.a for row in rows] == list(range(len(rows)))
    return [struct.unpack("<d", struct.pack("<q", row.b))[0] for row in rows]


# --- arguments, without torch -----------------------------------------------------------------------


def test_arguments_are_changed() -> None:
    """What is wanted replaces what the script gave; the rest stays."""
    arguments = {"dataset": None, "num_workers": 2, "prefetch_factor": 4}

    reason = trial.change_arguments(arguments, {"num_workers": 6}, KNOWN)

    assert reason is None
    assert arguments == {"dataset": None, "num_workers": 6, "prefetch_factor": 4}


def test_arguments_that_need_workers_go_with_them() -> None:
    """A loader without workers takes neither prefetch factor nor persistent workers."""
    arguments = {"num_workers": 2, "prefetch_factor": 4, "persistent_workers": True}

    assert trial.change_arguments(arguments, {"num_workers": 0}, KNOWN) is None
    assert arguments == {"num_workers": 0}


@pytest.mark.parametrize(
    ("arguments", "wanted", "word"),
    [
        ({}, {"in_order": False}, "in_order"),
        ({}, {"prefetch_factor": 4}, "prefetch_factor"),
        ({"num_workers": 2}, {"num_workers": 0, "persistent_workers": True}, "persistent"),
        ({"num_workers": 2, "timeout": 3.0}, {"num_workers": 0}, "timeout"),
    ],
)
def test_arguments_are_refused_as_a_whole(
    arguments: dict[str, Any], wanted: dict[str, Any], word: str
) -> None:
    """A change that a loader cannot take changes nothing and says why."""
    before = dict(arguments)

    reason = trial.change_arguments(arguments, wanted, KNOWN)

    assert reason is not None
    assert word in reason
    assert arguments == before


# --- in a training ----------------------------------------------------------------------------------


@pytest.mark.torch
def test_loader_is_built_with_the_wanted_arguments(tmp_path: Path) -> None:
    """The loader of the named line gets them, the other keeps its own, and the journal tells."""
    wish = {"loader": {"num_workers": 3, "prefetch_factor": 4, "persistent_workers": True}}

    observed = _run(tmp_path, wish)

    first = observed.iterations("loop")[0]
    assert (first.b, first.c, bool(first.flags & wire.LOADER_PERSISTENT)) == (3, 4, True)
    assert observed.iterations("other loop")[0].b == 0
    assert observed.output.splitlines()[-1] == "3 4 True"
    assert [note for note in observed.notes() if note.startswith("remedy")] == [
        "remedy-applied: loader 1: num_workers=3, prefetch_factor=4, persistent_workers=True"
    ]


@pytest.mark.torch
def test_loaders_are_all_meant_without_a_line(tmp_path: Path) -> None:
    """Where the line is not known, every loader is changed, and each is noted."""
    observed = _run(tmp_path, {"loader": {"num_workers": 1}}, label="")

    assert observed.iterations("loop")[0].b == 1
    assert observed.iterations("other loop")[0].b == 1
    assert sum(note.startswith("remedy-applied") for note in observed.notes()) == 2


@pytest.mark.torch
def test_loader_arrives_out_of_order(tmp_path: Path) -> None:
    """The order of delivery really changes."""
    observed = _run(tmp_path, {"loader": {"in_order": False}})

    assert not observed.iterations("loop")[0].flags & wire.LOADER_IN_ORDER


@pytest.mark.slow
@pytest.mark.torch
def test_losses_are_the_same_whatever_the_workers(tmp_path: Path) -> None:
    """A change that leaves the data as it is leaves the training bit-identical, and its losses show it."""
    outputs, losses = [], []
    for number, wish in enumerate(
        (
            {},
            {"loader": {"num_workers": 3, "prefetch_factor": 4}},
            {"loader": {"persistent_workers": True, "pin_memory": True}},
            {"sharing_strategy": "file_system", "worker_threads": 1},
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        observed = _run(folder, {"losses": 9, **wish})
        outputs.append(observed.output.splitlines()[0])
        losses.append(_losses(observed))

    assert len(losses[0]) == 9
    assert all(one == losses[0] for one in losses)
    assert all(one == outputs[0] for one in outputs)


@pytest.mark.torch
def test_losses_are_read_at_the_bound(tmp_path: Path) -> None:
    """A training that is ended in its loop has its losses recorded, too."""
    observed = observe(
        tmp_path, TRAINING, WHYIDLE_TRIAL=json.dumps({"losses": 50}), WHYIDLE_STEPS="5"
    )

    assert len(_losses(observed)) == 5


@pytest.mark.torch
@pytest.mark.parametrize(
    ("build", "wanted", "word"),
    [
        ("DataLoader(Numbers(8), batch_size=4)", {"unheard_of": 3}, "unheard_of"),
        ("DataLoader(Numbers(8), batch_size=4)", {"num_workers": -1}, "non-negative"),
        ("Strict(Numbers(8), batch_size=4)", {"num_workers": 1000}, "suggested max"),
    ],
)  # fmt: skip
def test_loader_is_the_scripts_own_when_the_change_fails(
    tmp_path: Path, build: str, wanted: dict[str, Any], word: str
) -> None:
    """Whatever the constructor says to the change, the script gets the loader that it asked for."""
    code = f"""
    class Strict(DataLoader):
        def __init__(self, dataset, **options):
            self.mine = 1
            warnings.simplefilter("error")
            super().__init__(dataset, **options)  # strict

    if __name__ == "__main__":
        loader = {build}
        print(loader.num_workers, loader.prefetch_factor, getattr(loader, "mine", 1))
        print(sum(1 for _ in loader))
    """

    observed = observe(tmp_path, code, WHYIDLE_TRIAL=json.dumps({"loader": wanted}))

    assert observed.output == "0 None 1\n2\n"
    (note,) = [one for one in observed.notes() if one.startswith("remedy")]
    assert note.startswith("remedy-refused: ")
    assert word in note


@pytest.mark.torch
def test_error_of_the_script_stays_its_own(tmp_path: Path) -> None:
    """A constructor call that is wrong without us raises what it raises without us."""
    code = """
    if __name__ == "__main__":
        for options in ({"num_workers": -1}, {"no_such": 1}, {"shuffle": True, "sampler": [0]}):
            try:
                DataLoader(Numbers(8), **options)
            except Exception as error:
                print(type(error).__name__, error.__context__)
    """

    observed = observe(
        tmp_path, code + "    for _ in DataLoader(Numbers(2)): pass",
        WHYIDLE_TRIAL=json.dumps({"loader": {"persistent_workers": True}}),
    )  # fmt: skip

    assert observed.output == "ValueError None\nTypeError None\nValueError None\n"


@pytest.mark.torch
def test_threads_are_limited_behind_worker_init_fn(tmp_path: Path) -> None:
    """What `worker_init_fn` sets is limited again before the first sample is made."""
    code = """
    class Counted(Numbers):
        def __getitem__(self, index): return torch.get_num_threads()

    def more(worker): torch.set_num_threads(5)

    if __name__ == "__main__":
        for batch in DataLoader(Counted(2), num_workers=1, worker_init_fn=more):
            print(int(batch), torch.get_num_threads() > 0)
    """

    observed = observe(tmp_path, code, WHYIDLE_TRIAL=json.dumps({"worker_threads": 2}))

    assert observed.output == "2 True\n2 True\n"
    (note,) = [one for one in observed.notes() if one.startswith("remedy")]
    assert note.startswith("remedy-applied: worker threads: environment, torch")


@pytest.mark.torch
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_cpus_are_given_back(tmp_path: Path) -> None:
    """A mask that the script sets for itself is widened where a loader is built."""
    allowed = sorted(os.sched_getaffinity(0))
    code = f"""
    class Cpus(Numbers):
        def __getitem__(self, index): return len(os.sched_getaffinity(0))

    if __name__ == "__main__":
        os.sched_setaffinity(0, {{{allowed[0]}}})
        loader = DataLoader(Cpus(1), num_workers=1)
        for batch in loader: print(int(batch), len(os.sched_getaffinity(0)))
    """

    observed = observe(tmp_path, code, WHYIDLE_TRIAL=json.dumps({"cpus": allowed}))

    assert observed.output == f"{len(allowed)} {len(allowed)}\n"
    assert f"remedy-applied: CPUs: {len(allowed)} instead of 1" in observed.notes()


@pytest.mark.torch
def test_wish_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    """Garbage in the environment is noted, no more."""
    observed = observe(tmp_path, TRAINING, WHYIDLE_TRIAL="{not json")

    assert observed.iterations("loop")[0].b == 2
    assert [one.partition(":")[0] for one in observed.notes()] == ["remedy-refused"]

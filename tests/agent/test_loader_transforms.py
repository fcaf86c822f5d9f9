"""Transforms are timed by the shape of their container, and their objects are left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.loaders import Observed, observe
from whyidle_agent import wire

if TYPE_CHECKING:
    from tests.agent.decoding import Record

pytestmark = pytest.mark.torch

CONTAINERS = """
    import functools, random

    class Add:
        def __init__(self, number): self.number = number
        def __call__(self, value): return value + self.number
        def __repr__(self): return "Add(%d)" % self.number

    class Twice(Add):
        def __call__(self, value): return super().__call__(super().__call__(value))

    class Compose:  # as torchvision's first ones
        def __init__(self, transforms): self.transforms = transforms
        def __call__(self, value):
            for transform in self.transforms:
                value = transform(value)
            return value

    class RandomApply(Compose): pass

    class ModuleAdd(torch.nn.Module):
        def __init__(self, number):
            super().__init__()
            self.number = number
        def forward(self, value): return value + self.number

    class ModuleCompose(torch.nn.Module):  # as torchvision's second ones
        def __init__(self, transforms):
            super().__init__()
            self.transforms = transforms
        def forward(self, value):
            for transform in self.transforms:
                value = transform(value)
            return value

    class Named:  # as albumentations
        def __call__(self, *, image): return {"image": image + 1}

    class ListOfNamed(list): pass

    class NamedCompose:
        def __init__(self, transforms): self.transforms = ListOfNamed(transforms)
        def __call__(self, **data):
            for transform in self.transforms:
                data = transform(**data)
            return data

    class Augmented(Numbers):
        def __init__(self, length, transform, call=None):
            super().__init__(length)
            self.transform = transform
            self.call = call
        def __getitem__(self, index):
            if self.call: return self.transform(image=index)["image"]
            return self.transform(torch.tensor(float(index)))

    class StandardTransform:
        def __init__(self, transform): self.transform = transform
        def __call__(self, value): return self.transform(value)

    class Owner(Numbers):
        def __init__(self, inner):
            self.inner = inner
            self.paths = list(range(10000))
        def __len__(self): return len(self.inner)
        def __getitem__(self, index): return self.inner[index]

    def double(value): return value * 2

    if __name__ == "__main__":
        torch.set_num_threads(1)
        transform = Compose([Add(1), RandomApply([Add(2), Add(3)]), Twice(1), double])
        text, pickled = repr(transform.transforms), pickle.dumps(transform)
        for batch in DataLoader(Augmented(4, transform), batch_size=2): pass  # inline
        for batch in DataLoader(Augmented(4, transform), batch_size=2, num_workers=1): pass  # worker
        plain = Subset(Augmented(4, StandardTransform(transform)), [3, 1])
        for batch in DataLoader(ConcatDataset([plain]), batch_size=2): pass  # inside
        for batch in DataLoader(Owner(Augmented(2, transform)), batch_size=2): pass  # owned
        modules = ModuleCompose([ModuleAdd(1), torch.nn.ReLU()])
        for batch in DataLoader(Augmented(2, modules), batch_size=2, num_workers=1): pass  # modules
        for batch in DataLoader(Augmented(2, modules), batch_size=2): pass  # modules inline
        sequential = torch.nn.Sequential(ModuleAdd(1), ModuleAdd(2))
        for batch in DataLoader(Augmented(2, sequential), batch_size=2, num_workers=1): pass  # sequential
        named = NamedCompose([Named(), Named()])
        for batch in DataLoader(Augmented(2, named, "named"), batch_size=2, num_workers=1): pass  # named
        assert (repr(transform.transforms), pickle.dumps(transform)) == (text, pickled)
        assert type(transform.transforms[0]) is Add and vars(transform.transforms[0]) == {"number": 1}
        assert transform(torch.tensor(0.0)) == 16
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """Containers of several libraries' shapes, in one run."""
    return observe(tmp_path_factory.mktemp("transforms"), CONTAINERS)


def in_worker(ran: Observed, label: str) -> tuple[list[Record], dict[int, str]]:
    """TRANSFORM records of an iteration's one worker, and its texts."""
    (worker,) = ran.of_iteration(wire.WORKER, label)
    return ran.made_by_workers(wire.TRANSFORM, label)[0], ran.worker_of(worker.b).texts


def names(records: list[Record], texts: dict[int, str]) -> list[tuple[str, int, int]]:
    """Name, position and depth of each record, in order of their beginning."""
    ordered = sorted(records, key=lambda one: (one.t0, one.d))
    return [(texts[one.b], one.c, one.d) for one in ordered]


EACH_SAMPLE = [("Add", 0), ("RandomApply", 0), ("Add", 1), ("Add#2", 1), ("Twice", 0)]
"""Name and depth of what one sample goes through; a plain function has no class to be timed by."""


def test_transforms_in_the_loop_are_recorded(ran: Observed) -> None:
    """Each part of a container is timed, for each sample, with its depth in containers of containers."""
    records = ran.of_iteration(wire.TRANSFORM, "inline")

    assert (
        names(records, ran.main.texts)
        == [(name, position, depth) for position in (0, 1) for name, depth in EACH_SAMPLE]
        * 2
    )
    assert [one.a for one in records] == [0] * 10 + [1] * 10


def test_transforms_in_a_worker_are_recorded(ran: Observed) -> None:
    """A forked worker names them in its own journal, though the main process knew them before."""
    records, texts = in_worker(ran, "worker")

    assert (
        names(records, texts)
        == [(name, position, depth) for position in (0, 1) for name, depth in EACH_SAMPLE]
        * 2
    )


def test_transforms_lie_in_their_sample(ran: Observed) -> None:
    """A transform's time is inside its sample's, and a nested one's inside its container's."""
    samples = {(one.a, one.c): one for one in ran.of_iteration(wire.SAMPLE, "inline")}
    records = ran.of_iteration(wire.TRANSFORM, "inline")

    for record in records:
        sample = samples[record.a, record.c]
        assert sample.t0 <= record.t0 <= record.t1 <= sample.t1
    outer = [one for one in records if ran.main.texts[one.b] == "RandomApply"]
    inner = [one for one in records if one.d == 1]
    assert len(inner) == 2 * len(outer) == 8
    for record in inner:
        assert any(one.t0 <= record.t0 and record.t1 <= one.t1 for one in outer)


def test_transforms_are_found_in_data_sets_inside(ran: Observed) -> None:
    """Subsets, concatenations and a data set's own attributes are looked through."""
    for label, count in (("inside", 2), ("owned", 2)):
        found = names(ran.of_iteration(wire.TRANSFORM, label), ran.main.texts)
        assert found == [
            (name, position, depth)
            for position in range(count)
            for name, depth in EACH_SAMPLE
        ]


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("modules", ["ModuleAdd"]),
        ("sequential", ["ModuleAdd", "ModuleAdd#2"]),
        ("named", ["Named", "Named#2"]),
    ],
)
def test_transforms_of_other_shapes(ran: Observed, label: str, expected: list[str]) -> None:
    """Containers that are modules, Sequentials or call by keyword are timed; torch's own layers are not."""
    records, texts = in_worker(ran, label)

    assert names(records, texts) == [
        (name, position, 0) for position in (0, 1) for name in expected
    ]


def test_modules_outside_of_workers_are_left_alone(ran: Observed) -> None:
    """In the process that trains, modules may be part of the model: they are not wrapped."""
    assert ran.of_iteration(wire.TRANSFORM, "modules inline") == []


def test_nothing_was_noted(ran: Observed) -> None:
    """No patch point was left alone and nothing of the agent failed."""
    assert ran.notes() == []

"""A training computes, prints and fails bit for bit as it would without the agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.conftest import Target
from tests.agent.loaders import DATA, PYTHON
from whyidle_agent import wire

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torch

TRAINING = """
import hashlib, inspect, random
try:
    import numpy
except ImportError:
    numpy = None

class Noisy(Numbers):
    def __getitem__(self, index):
        noise = torch.rand(3) + random.random()
        if numpy is not None:
            noise += float(numpy.random.rand())
        return torch.full((3,), float(index)) + noise, index

class NoisyStream(Stream):
    def __iter__(self):
        for value in super().__iter__():
            yield value.repeat(3) + torch.rand(3), int(value)

class Jitter:
    def __call__(self, pair): return pair[0] + torch.rand(1), pair[1]

class Compose:
    def __init__(self, transforms): self.transforms = transforms
    def __call__(self, pair):
        for transform in self.transforms:
            pair = transform(pair)
        return pair

class Transformed(Noisy):
    def __init__(self, length):
        super().__init__(length)
        self.transform = Compose([Jitter(), Jitter()])
    def __getitem__(self, index): return self.transform(super().__getitem__(index))

def digest(value):
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]

def random_state():
    state = numpy.random.get_state() if numpy is not None else ()
    return digest((torch.get_rng_state().tolist(), random.getstate(), str(state)))

def train(loader, epochs=2):
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    losses, order = [], []
    for _ in range(epochs):
        for value, index in loader:
            loss = model(value).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item().hex())
            order.extend(index.tolist())
    return losses, order

def main(method):
    torch.set_num_threads(1)
    # Under spawn every worker imports torch: two kinds of data sets have to do.
    kinds = ("map", "iterable") if method == "spawn" else None
    for workers in (0, 2):
        options = dict(batch_size=4, num_workers=workers)
        if workers:
            options["multiprocessing_context"] = method
        for name, dataset, extra in (
            ("map", Noisy(22), dict(shuffle=True)),
            ("transformed", Transformed(9), dict(shuffle=True)),
            ("subset", Subset(Noisy(22), list(range(3, 17))), dict(drop_last=True)),
            ("iterable", NoisyStream(9, 6), {}),
            ("persistent", Noisy(10), dict(persistent_workers=workers > 0)),
        ):
            if kinds is not None and name not in kinds:
                continue
            random.seed(7)
            torch.manual_seed(7)
            if numpy is not None:
                numpy.random.seed(7)
            loader = DataLoader(dataset, **options, **extra)
            losses, order = train(loader, 1 if method == "spawn" else 2)
            print(name, workers, order, digest(losses), random_state())

if __name__ == "__main__":
    main(os.environ["METHOD"])
"""

SURFACE = """
import gc, inspect, weakref

# Iterators that an error has put into a reference cycle are torch's own trouble when a collection
# happens to come in a forked worker: it says so on stderr, with or without the agent.
gc.disable()

class Warning_(Numbers):
    def __getitem__(self, index):
        warnings.warn("look at the caller", stacklevel=2)
        return super().__getitem__(index)

class Failing(Numbers):
    def __getitem__(self, index):
        if index == 5:
            raise KeyError("no such sample")
        return super().__getitem__(index)

class Unfit(Exception):
    def __init__(self, one, two): super().__init__(one + two)

def collate(samples):
    if len(samples) != 4:
        raise Unfit("too", "few")
    return samples

class Part:
    def __call__(self, value): raise ValueError("cannot transform")

class Compose:
    def __init__(self, transforms): self.transforms = transforms
    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value

class Transformed(Numbers):
    def __init__(self, length):
        super().__init__(length)
        self.transform = Compose([Part()])
    def __getitem__(self, index): return self.transform(index)

class Spoiled:
    def __getattr__(self, name): raise RuntimeError("who asks for " + name)
    def __eq__(self, other): raise RuntimeError("who compares")
    def __len__(self): return 4
    def __getitem__(self, index): return index

def caught(function):
    try:
        function()
    except Exception as error:
        print(type(error), error)

if __name__ == "__main__":
    print(inspect.signature(DataLoader))
    print(inspect.getfullargspec(DataLoader.__init__))
    loader = DataLoader(Numbers(8), batch_size=4, num_workers=1)
    print(sorted(vars(loader)), sorted(vars(DataLoader)))
    iterator = iter(loader)
    print(sorted(vars(iterator)), type(iterator), len(iterator))
    next(iterator)
    print(sorted(vars(loader)), sorted(vars(iterator)))
    gone = weakref.ref(iterator)
    del iterator
    print("let go at once:", gone() is None)
    iterator = iter(DataLoader(Numbers(2)))
    print(len(list(iterator)))
    gone, built = weakref.ref(iterator), weakref.ref(loader)
    copied = pickle.loads(pickle.dumps(loader))
    del iterator, loader
    print("let go at once:", gone() is None, built() is None)
    loader = copied
    print(pickle.dumps(loader) == pickle.dumps(pickle.loads(pickle.dumps(loader))))
    inline = iter(DataLoader(Transformed(4)))
    caught(lambda: next(inline))
    fetcher = inline._dataset_fetcher
    print(type(fetcher.dataset), fetcher.collate_fn.__name__, type(fetcher.dataset.transform.transforms[0]))
    print(pickle.loads(pickle.dumps(fetcher.dataset.transform)).transforms[0].__class__)
    caught(lambda: next(inline))
    for dataset, workers in ((Failing(8), 2), (Numbers(6), 1), (Transformed(4), 1)):
        caught(lambda: list(DataLoader(dataset, batch_size=4, num_workers=workers, collate_fn=collate)))
    caught(lambda: list(DataLoader(Spoiled(), batch_size=2, num_workers=0)))
    caught(lambda: list(DataLoader(Numbers(8), num_workers=2, timeout=-1)))
    list(DataLoader(Warning_(3)))
    short = Stream(5)
    Stream.__len__ = lambda self: 3
    Stream.__repr__ = lambda self: "stream"
    loader = DataLoader(short)
    print(len(loader), len(list(loader)))
"""


def both(folder: Path, script: str, **extra: str) -> list[tuple[int, str, str]]:
    """Exit status, output and error output of a script without and with the agent."""
    results = []
    target = Target(PYTHON, folder)
    for observed in (False, True):
        # Some versions of torch look at attributes in the order of a set.
        done = target.run(DATA + script, observed=observed, PYTHONHASHSEED="0", **extra)
        results.append((done.returncode, done.stdout, done.stderr))
    kinds = {record.kind for journal in target.journals() for record in journal.records}
    assert {wire.ASK, wire.FETCH, wire.HANDOFF} <= kinds
    assert wire.NOTE not in kinds
    return results


@pytest.mark.parametrize(
    ("method", "count"), [("fork", 10), pytest.param("spawn", 4, marks=pytest.mark.slow)]
)
def test_training_is_the_same_when_observed(
    tmp_path: Path, method: str, count: int
) -> None:
    """Losses, sample order and random state are bit-identical, with and without workers."""
    plain, observed = both(tmp_path, TRAINING, METHOD=method)

    assert plain[0] == 0, plain[2]
    assert observed == plain
    assert len(plain[1].splitlines()) == count


def test_surface_is_the_same_when_observed(tmp_path: Path) -> None:
    """What a script can see of loaders, errors and warnings, text by text, is what it was."""
    plain, observed = both(tmp_path, SURFACE)

    assert plain[0] == 0, plain[2]
    assert observed == plain
    assert "Original Traceback" in plain[1]
    assert "look at the caller" in plain[2]


def test_uncaught_error_when_observed(tmp_path: Path) -> None:
    """An error that ends the script reads the same but for one frame, that of the ask."""
    script = """
class Failing(Numbers):
    def __getitem__(self, index): raise ValueError("broken file")
for batch in DataLoader(Numbers(2), num_workers=1): pass
for batch in DataLoader(Failing(4)): pass
"""
    plain, observed = both(tmp_path, script)

    assert plain[:2] == observed[:2] == (1, "")
    added = [line for line in observed[2].splitlines() if line not in plain[2].splitlines()]
    assert [line for line in added if line.startswith("  File")] == [
        line for line in added if "whyidle_agent" in line
    ]
    assert sum("whyidle_agent" in line for line in added) == 1
    assert observed[2].splitlines()[-1] == "ValueError: broken file"

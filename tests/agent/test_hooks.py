"""Imports of the target stay the target's while the agent looks at them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.conftest import Target
from whyidle_agent import wire

LOOK = """
    import importlib.util, inspect, pickle, sys
    import torch.utils.data.dataloader as module
    def look():
        spec = module.__spec__
        loader = spec.loader
        print(type(loader), loader is module.__loader__, sorted(vars(loader)), spec.origin, spec.cached)
        print(loader.is_package(module.__name__), len(loader.get_source(module.__name__)))
        print(inspect.getsource(module.work), module.work.__module__, module.work.__qualname__)
        print(pickle.loads(pickle.dumps(module.work)) is module.work, getattr(spec, "_initializing", False))
    look()
    print(importlib.reload(module) is module)
    look()
    print(importlib.util.find_spec("torch.utils.data.dataloader") is not None)
"""


def test_module_when_hooked(target: Target, stub_torch: Path) -> None:
    """Spec, loader, source, pickling and reload of a hooked module are as without the agent."""
    target.path = [stub_torch]

    assert target.output(LOOK) == target.output(LOOK, observed=False)


@pytest.mark.parametrize(
    "code", ["raise ImportError('theirs')", "def (", "import sys; sys.exit(4)"]
)
def test_import_when_module_fails(target: Target, stub_torch: Path, code: str) -> None:
    """A hooked module that fails to import fails as it does without the agent."""
    target.path = [stub_torch]
    (stub_torch / "torch/utils/data/dataloader.py").write_text(code)
    attempt = """
        import sys
        try:
            import torch.utils.data
        except BaseException as error:
            print(type(error), error, [name for name in sys.modules if "torch" in name])
    """

    assert target.output(attempt) == target.output(attempt, observed=False)


def test_import_when_module_is_missing(target: Target) -> None:
    """A target without torch learns so as ever."""
    code = """
        import sys
        sys.path[:] = [entry for entry in sys.path if "site-packages" not in entry]
        try:
            import torch.utils.data.dataloader
        except ImportError as error:
            print(error.name, error)
    """

    assert (
        target.output(code)
        == target.output(code, observed=False)
        == "torch No module named 'torch'\n"
    )


def test_finder_of_target_when_it_looks_for_specs_itself(
    target: Target, stub_torch: Path
) -> None:
    """A finder in front of ours that asks for specs by itself, as patching tools do, still works."""
    target.path = [stub_torch]
    code = """
        import importlib.util, sys
        class Finder:
            busy = False
            def find_spec(self, name, path=None, target=None):
                if self.busy or name != "torch.utils.data.dataloader":
                    return None
                self.busy = True
                try:
                    return importlib.util.find_spec(name)
                finally:
                    self.busy = False
        sys.meta_path.append(Finder())
        sys.meta_path.insert(0, Finder())
        import torch.utils.data
        print(torch.utils.data.DataLoader.__name__)
    """

    assert target.output(code) == "DataLoader\n"


MARKS = """
    import torch
    import torch.utils.data
    from whyidle_agent import control
    control.on_step()
    print(torch.autograd.backward(1), torch.optim.SGD().step())
    print(torch.save(1, 2), torch.cuda.synchronize())
"""


def test_marks_when_loop_calls_torch(target: Target, stub_torch: Path) -> None:
    """Calls of torch in the loop leave marks with the line of the target, results unchanged."""
    target.path = [stub_torch]

    assert target.output(MARKS) == "gradient stepped\nsaved None\n"

    journal = target.journal()
    kinds = (wire.MARK_BACKWARD, wire.MARK_OPTIMIZER, wire.MARK_SAVE, wire.MARK_SYNC)
    marks = [mark for mark in journal.of(wire.MARK) if mark.ref in kinds]
    assert [(mark.ref, mark.c) for mark in marks] == list(
        zip(kinds, (6, 6, 7, 7), strict=True)
    )
    assert {journal.texts[mark.b] for mark in marks} == {str(target.folder / "target.py")}
    assert all(mark.t0 <= mark.t1 for mark in marks)
    assert journal.header["torch"] == "0.stub"


def test_marks_when_torch_was_imported_first(own_target: Target, stub_torch: Path) -> None:
    """An agent that comes up after torch still watches it."""
    own_target.path = [stub_torch]
    own_target.inject = own_target.inject.parents[1]
    code = (
        """
    import torch.utils.data
    from whyidle_agent import boot
    boot.start()
"""
        + MARKS
    )

    own_target.output(code)

    assert own_target.journal().of(wire.MARK) != []


def test_marks_when_not_in_the_loops_thread(own_target: Target, stub_torch: Path) -> None:
    """What other threads do is not the loop's doing."""
    own_target.path = [stub_torch]
    code = MARKS.replace("control.on_step()", "import threading").replace(
        "import torch\n", "import torch, gc\n    gc.disable()\n"
    )

    own_target.output(code)

    assert [mark for one in own_target.journals() for mark in one.of(wire.MARK)] == []


def test_patched_functions_when_pickled(target: Target, stub_torch: Path) -> None:
    """Wrapped functions pickle by name, keep their signature, and raise what they raised."""
    target.path = [stub_torch]
    (stub_torch / "torch/autograd.py").write_text(
        "def backward(loss, *, keep=1): raise KeyError(loss)"
    )
    code = """
        import inspect, pickle
        import torch, torch.utils.data
        for function in (torch.save, torch.autograd.backward, torch.optim.SGD.step):
            print(pickle.loads(pickle.dumps(function)) is function, inspect.signature(function))
        try:
            torch.autograd.backward(7)
        except KeyError as error:
            print(repr(error))
    """

    assert target.output(code) == target.output(code, observed=False)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_when_started(target: Target, stub_torch: Path, method: str) -> None:
    """Workers of every start method carry the agent's hooks."""
    target.path = [stub_torch]
    code = f"""
        import multiprocessing, sys
        import torch, torch.utils.data
        def body():
            import torch.utils.data
            from whyidle_agent import control
            control.on_step()
            torch.save(1, 2)
            assert hasattr(torch.save, "__wrapped__")
        if __name__ == "__main__":
            process = multiprocessing.get_context({method!r}).Process(target=body)
            process.start(); process.join()
            sys.exit(process.exitcode)
    """

    target.output(code)

    saves = [
        mark
        for one in target.journals()
        for mark in one.of(wire.MARK)
        if mark.ref == wire.MARK_SAVE
    ]
    assert len(saves) == 1


def test_surprise_when_torch_changed(own_target: Target, stub_torch: Path) -> None:
    """A patch point that is not there is left alone and reported; the others still work."""
    own_target.path = [stub_torch]
    (stub_torch / "torch/autograd.py").write_text("")

    own_target.output(MARKS.replace("torch.autograd.backward(1)", "1"))

    journal = own_target.journal()
    notes = [journal.texts[note.a] for note in journal.of(wire.NOTE)]
    assert any(note.startswith("autograd.backward: AttributeError") for note in notes)
    assert wire.MARK_SAVE in {mark.ref for mark in journal.of(wire.MARK)}

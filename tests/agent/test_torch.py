"""The loop's marks and bounded runs with the real torch."""

from __future__ import annotations

import subprocess

import pytest

from tests.agent.conftest import Target
from whyidle_agent import wire

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

TRAIN = """
    import gc, io, os, sys
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, TensorDataset
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ranks = "RANK" in os.environ
    if ranks:
        dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    compiled = torch.compile(model, backend="eager", fullgraph=True) if "compile" in sys.argv else model
    loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=4)
    losses = []
    try:
        for epoch in range(int(os.environ.get("EPOCHS", "1"))):
            for (batch,) in loader:
                loss = compiled(batch).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                if ranks:
                    dist.all_reduce(torch.ones(1))
                losses.append(loss.item())
            torch.save(model.state_dict(), io.BytesIO())
            gc.collect()
    finally:
        print(f"{len(losses)} {losses[-3:]}\\n", end="", flush=True)
"""
LINES = {wire.MARK_BACKWARD: "loss.backward()", wire.MARK_OPTIMIZER: "optimizer.step()"}
LINES |= {wire.MARK_SAVE: "torch.save(", wire.MARK_GC: "gc.collect()"}
LINES |= {wire.MARK_COLLECTIVE: "dist.all_reduce("}


@pytest.mark.parametrize("how", ["eager", "compile"])
def test_marks_when_training(own_target: Target, how: str) -> None:
    """Backward, step, save and collection lie at their lines, and the losses are the same bits."""
    code = TRAIN.replace("sys.argv", repr([how]))

    observed = own_target.output(code)

    assert observed == own_target.output(code, observed=False)
    journal = own_target.journal()
    source = (own_target.folder / "target.py").read_text().splitlines()
    for kind, count in (
        (wire.MARK_BACKWARD, 16),
        (wire.MARK_OPTIMIZER, 16),
        (wire.MARK_SAVE, 1),
    ):
        marks = [mark for mark in journal.of(wire.MARK) if mark.ref == kind]
        assert len(marks) == count
        assert all(LINES[kind] in source[mark.c - 1] for mark in marks)
    full = [
        mark for mark in journal.of(wire.MARK) if mark.ref == wire.MARK_GC and mark.d == 2
    ]
    assert any(LINES[wire.MARK_GC] in source[mark.c - 1] for mark in full)


def test_ranks_when_bounded(own_target: Target) -> None:
    """Two ranks under torchrun end at the same step, in order, with their collectives marked."""
    script = own_target.script(TRAIN)
    command = [own_target.executable, "-m", "torch.distributed.run", "--standalone"]
    environment = own_target.environment(
        WHYIDLE_STEPS="20", EPOCHS="100", OMP_NUM_THREADS="1"
    )

    done = subprocess.run(
        [*command, "--nproc-per-node", "2", str(script)],
        env=environment,
        cwd=own_target.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, [line[:3] for line in done.stdout.splitlines()]) == (
        0,
        ["20 ", "20 "],
    )
    ranks = sorted(own_target.journals(), key=lambda one: one.header["rank"])
    assert [one.header["rank"] for one in ranks] == [0, 1]
    assert [one.progress["step_count"] for one in ranks] == [20, 20]
    for journal in ranks:
        kinds = [mark.ref for mark in journal.of(wire.MARK)]
        assert kinds.count(wire.MARK_COLLECTIVE) == 20


def test_compiled_code_when_methods_are_watched(own_target: Target) -> None:
    """Wrapping the methods that read values changes nothing for compilers and overriders."""
    code = """
    import torch
    if WATCHED:
        from whyidle_agent import control, loop
        control.on_step()
        loop.SYNC_MIN_NS = 0
        loop.install_synchronising_methods(torch)
    torch._dynamo.config.capture_scalar_outputs = True
    for function in (lambda x: x * x.sum().item(), lambda x: x.cpu() + 1):
        print(torch.compile(function, backend="eager", fullgraph=True)(torch.arange(3.0)))
    print(dict(torch._dynamo.utils.counters["graph_break"]))
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            print(function.__name__)
            return function(*args, **(kwargs or {}))
    with Mode():
        print(torch.ones(()).item(), torch.ones(2).tolist())
    print(torch.overrides.resolve_name(torch.Tensor.item))
    """

    watched = own_target.output(code.replace("WATCHED", "True"))

    assert watched == own_target.output(code.replace("WATCHED", "False"))

"""The device clock: simulated accelerators, and CUDA events on a fake of torch.cuda."""

from __future__ import annotations

from itertools import pairwise

from tests.agent.conftest import SOURCE, Target
from whyidle_agent import wire

SIMULATED = f"""
    import sys, time
    sys.path.append({str(SOURCE)!r})
    from whyidle_agent import control, device
    from whyidle.testing import SimulatedAccelerator
"""


def test_busy_when_simulated(own_target: Target) -> None:
    """The busy intervals in the journal add up to the device's own truth, without overlap."""
    code = (
        SIMULATED
        + """
    accelerator = SimulatedAccelerator("toy")
    for step in range(30):
        control.on_step()
        device.before_ask(1, step)
        time.sleep(0.002 * (step % 3))
        for _ in range(5):
            accelerator.launch(0.0005)
    accelerator.synchronize()
    print(accelerator.busy_ns())
    """
    )

    truth_ns = int(own_target.output(code))

    journal = own_target.journal()
    busy = journal.of(wire.DEVICE_BUSY)
    assert sum(one.t1 - one.t0 for one in busy) == truth_ns == 30 * 5 * 500_000
    assert all(one.t1 <= other.t0 for one, other in pairwise(busy))
    assert all(one.a <= one.t0 for one in busy)
    (named,) = journal.of(wire.DEVICE)
    assert (named.a, journal.texts[named.b]) == (wire.DEVICE_KIND_SIMULATED, "toy")
    assert {one.ref for one in busy} == {named.ref}


def test_busy_when_pieces_are_tiny(own_target: Target) -> None:
    """Tiny pieces back to back share a record, so that their number does not fill the journal."""
    code = (
        SIMULATED
        + """
    accelerator = SimulatedAccelerator(max_queued=100_000)
    for _ in range(5000):
        accelerator.launch(0.0001)
    """
    )

    own_target.output(code)

    assert len(own_target.journal().of(wire.DEVICE_BUSY)) <= 110


def test_mark_when_simulated_device_is_waited_for(own_target: Target) -> None:
    """Waiting for the device is a mark at the line of the target that waited."""
    code = (
        SIMULATED
        + """
    accelerator = SimulatedAccelerator()
    control.on_step()
    accelerator.launch(0.020)
    accelerator.synchronize()
    """
    )

    own_target.output(code)

    journal = own_target.journal()
    (mark,) = [one for one in journal.of(wire.MARK) if one.ref == wire.MARK_SYNC]
    assert mark.t1 - mark.t0 >= 15_000_000
    assert (journal.texts[mark.b].rpartition("/")[2], mark.c) == ("target.py", 10)


def test_steps_when_launches_are_the_only_work(own_target: Target) -> None:
    """Launches make an ask a step."""
    code = (
        SIMULATED
        + """
    accelerator = SimulatedAccelerator()
    for step in range(10):
        control.on_step()
        if step % 2:
            accelerator.launch(0)
    """
    )

    own_target.output(code)

    assert own_target.journal().progress["step_count"] == 4


FAKE_CUDA = """
    import sys, types
    from whyidle_agent import control, device, loop
    clock = [0]              # of the device, us
    started = []
    class Event:
        def __init__(self, enable_timing):
            assert enable_timing
            started.append(self)
        def record(self):
            self.at = clock[0]
        def query(self):
            return self.at <= clock[0] - lag[0]
        def elapsed_time(self, other):
            return (other.at - self.at) / 1000
    lag = [0]
    cuda = sys.modules["torch.cuda"] = types.ModuleType("torch.cuda")
    cuda.Event, cuda.is_initialized = Event, lambda: ready[0]
    cuda.current_device, cuda.get_device_name = (lambda: 0), (lambda index: "fake")
    ready = [True]
    class Tensor:
        is_cuda = True
        def item(self): return 5
        cpu = tolist = item
    torch = sys.modules["torch"] = types.ModuleType("torch")
    torch.Tensor, torch._C = Tensor, types.SimpleNamespace(DisableTorchFunction=Unseen)
""".replace(
    "    clock = ",
    """    class Unseen:
        def __enter__(self): pass
        def __exit__(self, *error): pass
    clock = """,
)


def test_idle_when_cuda_waits(own_target: Target) -> None:
    """The time between two events around the wait is the device's idle time, ending at the second."""
    code = (
        FAKE_CUDA
        + """
    for step in range(5):
        control.on_step()
        device.before_ask(7, step)
        clock[0] += 100 * step
        device.after_ask(7, step)
    print(len(started))
    """
    )

    assert own_target.output(code) == "2\n"  # events are used again

    journal = own_target.journal()
    idle = journal.of(wire.DEVICE_IDLE)
    # The last wait is written at the next ask, which did not come.
    assert [(one.t1 - one.t0, one.b, one.c) for one in idle] == [
        (100_000 * step, 7, step) for step in range(4)
    ]
    (named,) = journal.of(wire.DEVICE)
    assert (named.a, journal.texts[named.b]) == (wire.DEVICE_KIND_CUDA, "fake")


def test_idle_when_device_lags_behind(own_target: Target) -> None:
    """Events that have not run are not waited for, and only so many are kept."""
    code = (
        FAKE_CUDA
        + """
    lag[0] = 10**9
    for step in range(200):
        device.before_ask(7, step)
        device.after_ask(7, step)
    print(len(started))
    lag[0] = 0
    device.before_ask(7, 200)
    """
    )

    assert own_target.output(code) == "128\n"

    assert len(own_target.journal().of(wire.DEVICE_IDLE)) == 64


def test_cuda_when_not_initialised(own_target: Target) -> None:
    """CUDA that the target has not initialised is not touched."""
    code = (
        FAKE_CUDA
        + """
    ready[0] = False
    device.before_ask(7, 0)
    device.after_ask(7, 0)
    print(len(started), hasattr(Tensor.item, "__wrapped__"))
    """
    )

    assert own_target.output(code) == "0 False\n"

    assert own_target.journals() == []


def test_cuda_when_it_fails(own_target: Target) -> None:
    """A failing CUDA call ends the device clock, with a note, and nothing else."""
    code = (
        FAKE_CUDA
        + """
    def fail(self): raise RuntimeError("illegal memory access")
    Event.record = fail
    for step in range(3):
        device.before_ask(7, step)
        device.after_ask(7, step)
    """
    )

    own_target.output(code)

    journal = own_target.journal()
    (note,) = journal.of(wire.NOTE)
    assert "illegal memory access" in journal.texts[note.a]


def test_mark_when_value_is_read_from_device(own_target: Target) -> None:
    """Reading a tensor's value from the device is a mark at the reading line, once CUDA is in use."""
    code = (
        FAKE_CUDA
        + """
    loop.SYNC_MIN_NS = 0
    control.on_step()
    device.before_ask(7, 0)
    print(Tensor().item(), Tensor.item.__name__)
    Tensor.is_cuda = False
    Tensor().item()
    """
    )

    assert own_target.output(code) == "5 item\n"

    journal = own_target.journal()
    marks = [one for one in journal.of(wire.MARK) if one.ref == wire.MARK_SYNC]
    assert len(marks) == 1

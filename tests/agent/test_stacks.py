"""Stack samples name what a thread does, for how long, and whether it runs or is blocked."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from tests.agent.conftest import Target
from tests.agent.decoding import Decoded
from whyidle_agent import wire

WATCHED = """
    import hashlib, os, socket, sys, threading, time
    from whyidle_agent import stacks, wire
    stacks.watch(wire.STACK_ROLE_LOOP)
    def python(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sum(range(1000))
    def native(seconds):
        data, end = bytes(20_000_000), time.monotonic() + seconds
        while time.monotonic() < end:
            hashlib.sha256(data).digest()
    def sleeping(seconds):
        time.sleep(seconds)
    def locked(seconds):
        lock = threading.Lock()
        lock.acquire()
        lock.acquire(timeout=seconds)
    def piping(seconds):
        read, write = os.pipe()
        threading.Timer(seconds, os.write, (write, b"x")).start()
        os.read(read, 1)
    def polling(seconds):
        one, other = socket.socketpair()
        one.settimeout(seconds)
        try:
            one.recv(1)
        except OSError:
            pass
"""


def shares(journal: Decoded) -> Counter:
    """Sampled time by leaf-most function of the target, state and target of the call, seconds.

    Without the first sample: on a crowded machine it stands for the time in which the target got going.
    """
    seconds: Counter = Counter()
    for sample in journal.of(wire.STACK)[1:]:
        frames = journal.texts[sample.a & 0xFFFFFFFF].split(",")
        names = [journal.texts[int(number)].split("\0")[1] for number in frames]
        known = ("python", "native", "sleeping", "locked", "piping", "polling")
        name = next((name for name in names if name.rpartition(".")[2] in known), "other")
        state = {1: "cpu", 2: "blocked", 0: "unknown"}[sample.flags & 3]
        seconds[name, state, journal.texts.get(sample.a >> 32)] += (
            sample.t1 - sample.t0
        ) / 1e9
    return seconds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "state", "leads_to"),
    [
        ("python", "cpu", None),
        ("native", "cpu", None),
        ("sleeping", "blocked", None),
        ("locked", "blocked", None),
        ("piping", "blocked", "pipe:"),
        ("polling", "blocked", "socket:"),
    ],
)
def test_samples_when_thread_is_busy(
    target: Target, function: str, state: str, leads_to: str | None
) -> None:
    """Most of the sampled time is in the right function, state and kind of descriptor."""
    target.output(WATCHED + f"    {function}(1.0)")

    seconds = shares(target.journal())
    # A share of samples, not a time limit: on a crowded machine they are fewer but say the same.
    assert seconds[function, state, leads_to] >= 0.7 * sum(seconds.values())


def test_samples_when_context_is_set(own_target: Target) -> None:
    """Samples carry what the loader says the thread is in, and the role it was watched in."""
    code = (
        WATCHED
        + """
    stacks.context[threading.get_native_id()] = wire.STACK_IN_FETCH
    sleeping(0.5)
    """
    )

    own_target.output(code)

    samples = own_target.journal().of(wire.STACK)
    assert len(samples) >= 2
    assert {sample.ref for sample in samples} == {wire.STACK_ROLE_LOOP}
    assert {sample.flags & wire.STACK_IN_FETCH for sample in samples} == {
        wire.STACK_IN_FETCH
    }
    assert all(one.t1 == other.t0 for one, other in pairwise(samples))


def test_frames_when_stack_is_deep(own_target: Target) -> None:
    """A deep stack is cut at its far end: the leaf is always there, without frames of the agent."""
    code = (
        WATCHED
        + """
    def deep(levels):
        return deep(levels - 1) if levels else sleeping(0.5)
    deep(100)
    """
    )

    own_target.output(code)

    journal = own_target.journal()
    for sample in journal.of(wire.STACK):
        frames = journal.texts[sample.a & 0xFFFFFFFF].split(",")
        files = [journal.texts[int(number)].split("\0")[0] for number in frames]
        assert len(frames) == 48
        assert journal.texts[int(frames[0])].split("\0")[1] == "sleeping"
        assert not any("whyidle_agent" in file for file in files)


def test_threads_of_target_when_sampled(target: Target) -> None:
    """The target does not see the sampler among its threads, nor when it forks, nor at its end."""
    code = (
        WATCHED
        + """
    print(threading.active_count(), len(os.listdir("/proc/self/task")))
    for _ in range(3):
        child = os.fork()
        if child == 0:
            os._exit(len(os.listdir("/proc/self/task")))
        print(os.waitpid(child, 0)[1] >> 8, threading.active_count())
    """
    )

    output = target.output(code, "-W", "error")

    assert output == "1 2\n1 1\n1 1\n1 1\n"


def test_samples_when_process_forks(own_target: Target) -> None:
    """After a fork the parent is sampled on, and the child when it asks to be."""
    code = (
        WATCHED
        + """
    if os.fork() == 0:
        stacks.watch(wire.STACK_ROLE_WORKER)
        sleeping(1.0)
        os._exit(0)
    sleeping(1.0)
    os.wait()
    """
    )

    own_target.output(code)

    roles = [{sample.ref for sample in one.of(wire.STACK)} for one in own_target.journals()]
    assert sorted(roles, key=min) == [{wire.STACK_ROLE_LOOP}, {wire.STACK_ROLE_WORKER}]


def test_sampler_when_watched_thread_ends(own_target: Target) -> None:
    """With nobody left to watch the sampler ends, and comes back with the next one."""
    code = """
    import os, threading, time
    from whyidle_agent import stacks, wire
    def body():
        stacks.watch(wire.STACK_ROLE_PIN)
    def tasks():
        return len(os.listdir("/proc/self/task"))
    for _ in range(2):
        thread = threading.Thread(target=body)
        thread.start(); thread.join()
        end = time.monotonic() + 10
        while tasks() > 1 and time.monotonic() < end:
            time.sleep(0.01)
        print(tasks())
    """

    assert own_target.output(code) == "1\n1\n"


@pytest.mark.parametrize("enable", ["gc.enable()", "gc.disable()"])
def test_collections_of_target_when_sampled(own_target: Target, enable: str) -> None:
    """Whether collections are on stays as the target had it."""
    code = f"""
    import gc
    {enable}
    before = gc.isenabled()
    sleeping(0.5)
    print(gc.isenabled() == before)
    """

    assert own_target.output(WATCHED + code) == "True\n"
    assert own_target.journal().of(wire.STACK)


def test_samples_when_audit_hook_is_added(own_target: Target) -> None:
    """A hook in Python would run in the midst of a look: from then on there are none."""
    code = """
    sys.addaudithook(lambda event, args: time.sleep(0) if event == "sys._current_frames" else None)
    sleeping(0.5)
    print(len(os.listdir("/proc/self/task")))
    """

    assert own_target.output(WATCHED + code) == "1\n"


def test_signals_of_target_when_sampled(own_target: Target) -> None:
    """A signal that the target has blocked in its own thread is not delivered to the sampler."""
    code = """
    import os, signal, time
    from whyidle_agent import stacks, wire
    stacks.watch(wire.STACK_ROLE_LOOP)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    os.kill(os.getpid(), signal.SIGUSR1)
    print(signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1)
    """

    assert own_target.output(code) == "True\n"


def test_switch_interval_of_target_when_sampled(own_target: Target) -> None:
    """The target's switch interval is its own again after looks, in a forked child and after the end."""
    code = (
        WATCHED
        + """
    sys.setswitchinterval(0.007)
    for _ in range(20):
        child = os.fork()
        if child == 0:
            os._exit(round(sys.getswitchinterval() * 1000))
        python(0.03)
        assert os.waitpid(child, 0)[1] >> 8 == 7
    stacks._at_exit()
    print(round(sys.getswitchinterval(), 6))
    """
    )

    assert own_target.output(code) == "0.007\n"

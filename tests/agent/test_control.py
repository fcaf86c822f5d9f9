"""Bounded runs end as the script itself would end."""

from __future__ import annotations

import struct

import pytest

from tests.agent.conftest import Target
from whyidle_agent import wire

LOOP = """
    import atexit, queue, sys, threading, time
    from whyidle_agent import control
    control.GRACE_SECONDS = 0.3
    atexit.register(print, "atexit")
    def loop(count=1000, work=None):
        done = 0
        try:
            for _ in range(count):
                control.on_step()
                control.saw_work(work or 0)
                done += 1
        finally:
            print("finally", done)
"""


def test_end_when_bound_is_reached(target: Target) -> None:
    """After N steps the loop is left through finally and atexit, with status 0."""
    assert target.output(LOOP + "    loop(); print('not reached')", WHYIDLE_STEPS="20") == (
        "finally 20\natexit\n"
    )

    assert target.journal().progress["step_count"] == 20


def test_end_when_script_catches_exception(target: Target) -> None:
    """A script that catches Exception does not catch the end."""
    code = (
        LOOP
        + """
    try:
        loop()
    except Exception:
        print("caught")
    """
    )

    assert target.output(code, WHYIDLE_STEPS="5") == "finally 5\natexit\n"


def test_end_when_script_swallows_everything(target: Target) -> None:
    """A script that catches everything is ended again at each later ask."""
    code = (
        LOOP
        + """
    try:
        loop()
    except BaseException as error:
        print("caught", error.code)
    loop()
    """
    )

    assert (
        target.output(code, WHYIDLE_STEPS="5") == "finally 5\ncaught 0\nfinally 0\natexit\n"
    )


MAIN_THREADS = {
    "joins": "thread.join(); print('main goes on')",
    "waits for a queue": "queue.Queue().get()",
    "sleeps": "while True: time.sleep(0.05)",
    "waits for a lock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
}


@pytest.mark.parametrize("main", MAIN_THREADS)
def test_end_when_loop_runs_in_a_thread(target: Target, main: str) -> None:
    """The process ends in order, too, when the loop does not run in the main thread."""
    code = (
        LOOP
        + f"""
    thread = threading.Thread(target=loop)
    thread.start()
    {MAIN_THREADS[main]}
    """
    )

    output = target.output(code, WHYIDLE_STEPS="5")

    assert output.replace("main goes on\n", "") == "finally 5\natexit\n"


def test_end_when_loop_runs_in_a_pool(target: Target) -> None:
    """A future hands the end of its loop on to the main thread."""
    code = (
        LOOP
        + """
    import concurrent.futures
    with concurrent.futures.ThreadPoolExecutor() as pool:
        pool.submit(loop).result()
    print("not reached")
    """
    )

    assert target.output(code, WHYIDLE_STEPS="5") == "finally 5\natexit\n"


def test_end_when_launcher_names_a_step(target: Target) -> None:
    """The launcher ends a training by a step in the control file; several ranks end there alike."""
    path = target.run_dir / wire.CONTROL_FILE
    path.write_bytes(struct.pack("<8q", 7, *[0] * 7))

    assert target.output(LOOP + "    loop()") == "finally 7\natexit\n"


def test_end_when_launcher_names_a_step_while_running(own_target: Target) -> None:
    """A step written into the control file during the run is obeyed."""
    (own_target.run_dir / wire.CONTROL_FILE).write_bytes(bytes(wire.CONTROL_BYTES))
    code = (
        LOOP
        + f"""
    import os, struct
    loop(10)
    path = os.path.join(os.environ["WHYIDLE_RUN_DIR"], {wire.CONTROL_FILE!r})
    with open(path, "r+b") as file:
        file.write(struct.pack("<q", 15))
    loop()
    """
    )

    assert own_target.output(code) == "finally 10\nfinally 5\natexit\n"


@pytest.mark.parametrize("content", [None, b"", b"short"])
def test_run_when_there_is_no_bound(own_target: Target, content: bytes | None) -> None:
    """Without a bound, or with a control file that is none, the loop runs to its own end."""
    if content is not None:
        (own_target.run_dir / wire.CONTROL_FILE).write_bytes(content)

    assert own_target.output(LOOP + "    loop(30)") == "finally 30\natexit\n"


@pytest.mark.parametrize("work", ["control.WEAK", "control.STRONG"])
def test_steps_when_validation_lies_between(own_target: Target, work: str) -> None:
    """Asks without work between them do not count once a training loop has been recognised."""
    code = (
        LOOP
        + f"""
    loop(10, work={work})
    loop(100)
    loop(10, work={work})
    """
    )

    output = own_target.output(code, WHYIDLE_STEPS="15")

    # The work after a loop's last ask is counted at the next loop's first ask.
    assert output == "finally 10\nfinally 100\nfinally 5\natexit\n"


def test_steps_when_validation_launches_work(own_target: Target) -> None:
    """Launches alone do not count where backward passes have been seen."""
    code = (
        LOOP
        + """
    loop(10, work=control.STRONG)
    loop(100, work=control.WEAK)
    loop(10, work=control.STRONG)
    """
    )

    assert own_target.output(code, WHYIDLE_STEPS="15").startswith(
        "finally 10\nfinally 100\nfinally 5\n"
    )


def test_steps_when_process_is_a_worker(own_target: Target) -> None:
    """A loader that is used inside a worker of another loader is not the training loop."""
    code = (
        """
    import sys, types
    worker = sys.modules["torch.utils.data._utils.worker"] = types.ModuleType("worker")
    worker._worker_info = "something"
"""
        + LOOP
        + "    loop(30)"
    )

    assert own_target.output(code, WHYIDLE_STEPS="5") == "finally 30\natexit\n"

"""Roles of processes, from what is seen of them."""

from __future__ import annotations

import pytest

from whyidle.observe.tree import Role, Seen, assign_roles
from whyidle.store.live import LiveJournal
from whyidle_agent import wire

PYTHON = "/usr/bin/python3.11"
TRAIN = ("python", "train.py")
SPAWNED = (
    "python",
    "-c",
    "from multiprocessing.spawn import spawn_main",
    "--multiprocessing-fork",
)
FORKSERVER = ("python", "-c", "from multiprocessing.forkserver import main")


def _seen(
    pid: int,
    parent_pid: int,
    *command_line: str,
    name: str = "python",
    executable: str = PYTHON,
) -> Seen:
    return Seen(
        pid=pid,
        parent_pid=parent_pid,
        name=name,
        executable=executable,
        command_line=command_line,
    )


def _journal(
    pid: int,
    steps: int = 0,
    *,
    rank: bool = False,
    launcher: bool = False,
    worker: bool = False,
) -> LiveJournal:
    return LiveJournal(
        pid=pid,
        step_count=steps,
        heartbeat_ns=0,
        has_rank=rank,
        is_launcher=launcher,
        is_worker=worker,
    )


def _roles(processes: list[Seen], *journals: LiveJournal) -> dict[int, Role]:
    return assign_roles(
        {one.pid: one for one in processes}, {one.pid: one for one in journals}
    )


def test_roles_have_the_numbers_of_the_journal() -> None:
    """Every role has the number that journals write."""
    for role in Role:
        assert getattr(wire, f"PROCESS_ROLE_{role.name}") == role


def test_forked_workers_below_a_shell() -> None:
    """A shell is other, its Python trains, the forks of that are workers, an exec of it is not."""
    processes = [
        _seen(1, 0, "bash", "train.sh", name="bash", executable="/bin/bash"),
        _seen(2, 1, *TRAIN),
        _seen(3, 2, *TRAIN),
        _seen(4, 2, "ffmpeg", "-i", name="ffmpeg", executable="/usr/bin/ffmpeg"),
        _seen(
            5,
            2,
            "python",
            "-c",
            "from multiprocessing.resource_tracker import main;main(9)",
        ),
    ]

    roles = _roles(processes)

    assert roles == {
        1: Role.OTHER,
        2: Role.TRAINING,
        3: Role.WORKER,
        4: Role.OTHER,
        5: Role.OTHER,
    }


def test_spawned_and_forkserver_workers() -> None:
    """Spawned workers are known by multiprocessing's flag, those of a forkserver by its arguments."""
    processes = [
        _seen(2, 1, *TRAIN),
        _seen(3, 2, *SPAWNED),
        _seen(4, 2, *FORKSERVER),
        _seen(5, 4, *FORKSERVER),
    ]

    roles = _roles(processes)

    assert (roles[3], roles[4], roles[5]) == (Role.WORKER, Role.OTHER, Role.WORKER)


def test_ranks_below_a_launcher() -> None:
    """With ranks that record, the Python above them is a launcher."""
    processes = [
        _seen(1, 0, "python", "-m", "torch.distributed.run"),
        _seen(2, 1, *TRAIN),
        _seen(3, 1, *TRAIN),
        _seen(4, 2, *TRAIN),
    ]

    roles = _roles(
        processes,
        _journal(1, launcher=True),
        _journal(2, 5, rank=True),
        _journal(3, rank=True),
    )

    assert roles == {1: Role.LAUNCHER, 2: Role.TRAINING, 3: Role.TRAINING, 4: Role.WORKER}


def test_spawned_ranks_are_no_workers() -> None:
    """A rank that multiprocessing spawned steps and says that it is no worker."""
    processes = [_seen(1, 0, *TRAIN), _seen(2, 1, *SPAWNED), _seen(3, 2, *SPAWNED)]

    roles = _roles(processes, _journal(2, 3), _journal(3, worker=True))

    assert roles == {1: Role.LAUNCHER, 2: Role.TRAINING, 3: Role.WORKER}


def test_wrapper_in_python_becomes_a_launcher_once_its_child_steps() -> None:
    """The topmost Python is taken for the training until a process below it iterates."""
    processes = [_seen(1, 0, "python", "wrap.py"), _seen(2, 1, *TRAIN)]

    before = _roles(processes)
    after = _roles(processes, _journal(2, 1))

    assert (before[1], after[1], after[2]) == (Role.TRAINING, Role.LAUNCHER, Role.TRAINING)


def test_named_worker_thread_is_enough() -> None:
    """Torch's thread name makes a worker of any process below a training."""
    roles = _roles([_seen(1, 0, *TRAIN), _seen(2, 1, name="pt_data_worker", executable="")])

    assert roles[2] is Role.WORKER


@pytest.mark.parametrize("parent", [2, 0])
def test_circles_and_orphans_end(parent: int) -> None:
    """A process whose parent is unknown, or itself, does not loop."""
    roles = _roles([_seen(2, parent, "sleep", "1", name="sleep", executable="/bin/sleep")])

    assert roles == {2: Role.OTHER}

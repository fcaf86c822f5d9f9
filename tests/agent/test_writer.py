"""The journal of a process: whole records whatever ends it, bounded, and harmless to the target."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.agent.conftest import Target
from tests.agent.decoding import decode
from whyidle_agent import wire

WRITE = """
    import os, sys
    from whyidle_agent import wire, writer
    def write(count, start=0, kind=wire.ASK):
        for number in range(start, start + count):
            writer.emit(kind, 1, 2, number, number + 1, number, 4, 5, -6)
"""
PER_SEGMENT = 256 * 1024 // wire.RECORD_BYTES


def test_records_when_written(target: Target) -> None:
    """What is written is read again, field by field, over several segments."""
    count = 2 * PER_SEGMENT + 10

    target.output(WRITE + f"    write({count})")

    journal = target.journal()
    assert [record[1:] for record in journal.records] == [
        (wire.ASK, 1, 2, number, number + 1, number, 4, 5, -6) for number in range(count)
    ]
    assert journal.progress["dropped_count"] == 0


def test_header_when_process_is_a_rank(target: Target) -> None:
    """The header says who wrote, with the rank that the launcher of the ranks gave."""
    target.output(WRITE + "    write(1)", RANK="3", LOCAL_RANK="1")

    header = target.journal().header
    assert [header["pid"]] == target.booted()
    assert header["parent_pid"] == os.getpid()
    assert (header["role"], header["rank"], header["local_rank"]) == ("agent", 3, 1)
    assert (header["argv0"], header["torch"], header["is_launcher"]) == (
        "target.py",
        None,
        False,
    )


@pytest.mark.parametrize(
    "program", ["plain.py", 'q"uo\\te.py', "smile 😀.py", "tab\t.py", "x" * 5000]
)
def test_header_when_program_has_an_odd_name(own_target: Target, program: str) -> None:
    """The header is JSON whatever the script is called; a name without end is left out."""
    own_target.output(WRITE + f"    sys.argv[0] = {program!r}; write(1)", PYTHONUTF8="1")

    assert own_target.journal().header["argv0"] == (program if len(program) < 1000 else "")


def test_text_when_long_or_odd(target: Target) -> None:
    """Texts of any length and content come back, equal ones once, lone surrogates spelled out."""
    code = (
        WRITE
        + r"""
    words = ["short", "é" * 200, "x" * 48, "\udcff", "a\0b", "", "short"]
    print([writer.text(word) for word in words])
    """
    )

    assert target.output(code) == "[1, 2, 3, 4, 5, 0, 1]\n"

    assert target.journal().texts == {
        1: "short",
        2: "é" * 200,
        3: "x" * 48,
        4: "\\udcff",
        5: "a\0b",
    }


def test_numbers_when_out_of_range(target: Target) -> None:
    """Numbers that no field can hold are clamped, and what is no number is -1."""
    code = (
        WRITE
        + """
    writer.emit(wire.ASK, -1, 2**40, 2**70, -2**70, None, 1.9, "x", 7)
    writer.progress(0, 2**80)
    """
    )

    target.output(code)

    (record,) = target.journal().records
    assert record[1:] == (wire.ASK, 0, 2**32 - 1, 2**63 - 1, -(2**63), -1, 1, -1, 7)


def test_records_when_threads_write(target: Target) -> None:
    """Threads write side by side: no slot twice, none lost, each thread's records in its order."""
    code = (
        WRITE
        + """
    import threading
    sys.setswitchinterval(1e-5)
    def body(thread):
        for number in range(5000):
            writer.emit(wire.ASK, 0, thread, number, 0, 0, 0, 0, 0)
    threads = [threading.Thread(target=body, args=(one,)) for one in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    """
    )

    target.output(code)

    records = target.journal().records
    for thread in range(4):
        assert [one.t0 for one in records if one.ref == thread] == list(range(5000))


def test_journal_when_process_forks(target: Target) -> None:
    """Parent and child of a fork write to journals of their own."""
    code = (
        WRITE
        + """
    write(1)
    if os.fork() == 0:
        write(2, 100)
        os._exit(0)
    os.wait()
    write(1, 1)
    """
    )

    target.output(code)

    parent, child = target.journals()
    assert [record.t0 for record in parent.records] == [0, 1]
    assert [record.t0 for record in child.records] == [100, 101]
    assert child.header["parent_pid"] == parent.header["pid"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_closed_when_worker_ends(target: Target, method: str) -> None:
    """A child of multiprocessing, which ends without atexit, says that it ended in order."""
    code = (
        WRITE
        + f"""
    import multiprocessing
    def body():
        write(1)
    if __name__ == "__main__":
        process = multiprocessing.get_context({method!r}).Process(target=body)
        process.start(); process.join()
        write(1)
        raise SystemExit(process.exitcode)
    """
    )

    target.output(code)

    assert [one.progress["closed"] for one in target.journals()] == [1, 1]


def test_closed_when_process_is_killed(own_target: Target) -> None:
    """A process that did not end in order does not say so."""
    own_target.run(WRITE + "    write(1)\n    os.kill(os.getpid(), 9)")

    assert own_target.journal().progress["closed"] == 0


def test_journal_when_killed_at_any_time(own_target: Target) -> None:
    """Whatever the moment of a kill -9, the whole records are contiguous and correct."""
    code = WRITE + "    print(flush=True)\n    write(10**9)"
    moments = random.Random(1)

    for _ in range(12):
        process = own_target.start(code)
        assert process.stdout.readline()
        time.sleep(moments.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        process.communicate()

    for journal in own_target.journals():
        assert [record.slot for record in journal.records] == list(
            range(len(journal.records))
        )
        assert all(record.t0 == record.a == record.slot for record in journal.records)


def test_journal_when_cut_anywhere(own_target: Target) -> None:
    """A journal cut at any byte opens, and holds exactly the records before the cut."""
    own_target.output(WRITE + "    writer.text('y' * 100)\n    write(5)")
    (path,) = (own_target.run_dir / "journals").iterdir()
    used = wire.HEADER_BYTES + 8 * wire.RECORD_BYTES
    data = path.read_bytes()

    for end in range(used + 1):
        whole = max(0, end - wire.HEADER_BYTES) // wire.RECORD_BYTES
        assert len(decode(data[:end]).records) == max(0, whole - 3)


@pytest.mark.parametrize("place", ["gone", "a file", "a place for no one"])
def test_target_when_folder_takes_no_journal(target: Target, place: str) -> None:
    """Where no journal can be created the target runs on and nothing is recorded."""
    (target.folder / "file").write_text("")
    folders = {"gone": "no/such", "a file": "file", "a place for no one": "/proc/self"}
    run_dir = str(target.folder / folders[place])

    code = (
        WRITE
        + "    write(3); writer.note('a', 'b'); print(writer.enabled(), writer.text('x'))"
    )

    assert target.output(code, WHYIDLE_RUN_DIR=run_dir) == "False 0\n"


def test_target_when_run_folder_is_deleted(target: Target) -> None:
    """Deleting the run folder under a running target stops recording, nothing else."""
    code = (
        WRITE
        + """
    import shutil
    write(10)
    shutil.rmtree(os.environ["WHYIDLE_RUN_DIR"])
    write(3 * 4096)
    print(writer.enabled())
    """
    )

    assert target.output(code) == "False\n"


def test_target_when_journal_is_replaced(own_target: Target) -> None:
    """Another file under the journal's name is never written to."""
    code = (
        WRITE
        + """
    write(1)
    folder = os.path.join(os.environ["WHYIDLE_RUN_DIR"], "journals")
    path = os.path.join(folder, os.listdir(folder)[0])
    os.rename(path, path + ".old")
    with open(path, "w") as file:
        file.write("mine")
    write(3 * 4096)
    print(open(path).read(), writer.enabled())
    """
    )

    assert own_target.output(code) == "mine False\n"


def test_target_when_descriptors_run_out(target: Target) -> None:
    """A target without a free descriptor loses records, not its run."""
    code = (
        WRITE
        + """
    import resource
    write(1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    write(3 * 4096)
    print(writer.enabled())
    """
    )

    assert target.output(code) == "False\n"

    assert target.journal().progress["dropped_count"] > 0


def test_files_of_target_when_it_closed_ours(target: Target) -> None:
    """A target that closes all descriptors and gets our numbers keeps its own files."""
    code = (
        WRITE
        + """
    write(1)
    os.closerange(3, 200)
    mine = [open("mine-%d" % number, "w+") for number in range(20)]
    write(5 * 4096)
    for number, file in enumerate(mine):
        file.write(str(number))
        file.close()
    print([open(file.name).read() for file in mine] == [str(number) for number in range(20)])
    """
    )

    assert target.output(code) == "True\n"

    assert len(target.journal().records) == 5 * PER_SEGMENT + 1


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_target_when_disk_is_full(target: Target) -> None:
    """On a full disk recording stops, is said to have stopped, and the target lives."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(target.run_dir)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr!r}")
    try:
        output = target.output(WRITE + "    write(5 * 4096)\n    print(writer.enabled())")
        journal = target.journal()
    finally:
        subprocess.run(["umount", str(target.run_dir)], check=True)

    assert output == "False\n"
    assert journal.header["stopped"] == "No space left on device"
    assert len(journal.records) == 2 * PER_SEGMENT
    # The record that met the full disk is counted, and those after it.
    assert journal.progress["dropped_count"] == 3 * PER_SEGMENT


def test_growth_when_run_is_long(own_target: Target) -> None:
    """Details are thinned as they come in, steps are kept up to the bound, the rest is counted."""
    code = """
    from whyidle_agent import boot
    import whyidle_agent.writer as writer, whyidle_agent.wire as wire
    writer.MAX_BYTES = 1024 * 1024
    writer.SAMPLE_RECORDS = 1600
    writer._begin()
    strides = []
    for number in range(1600):
        writer.emit(wire.SAMPLE, 0, 0, number, 0, 0, 0, 0, 0)
        strides.append(writer.sample_stride())
    for number in range(20000):
        writer.emit(wire.ASK, 0, 0, number, 0, 0, 0, 0, 0)
    print(strides[0], strides[100], strides[1599], writer.stack_stride())
    """

    assert own_target.output(code) == "1 2 32768 1\n"

    journal = own_target.journal()
    (path,) = (own_target.run_dir / "journals").iterdir()
    samples, asks = len(journal.of(wire.SAMPLE)), len(journal.of(wire.ASK))
    assert path.stat().st_size <= 1024 * 1024
    assert (samples, samples + asks) == (1599, 3 * PER_SEGMENT)
    assert journal.progress["dropped_count"] == 1 + 20000 - asks
    assert journal.header["stopped"] == "budget"


def test_memory_when_journal_grows(target: Target) -> None:
    """Old segments are unmapped: at most two of them and the header stay in memory."""
    code = (
        WRITE
        + """
    write(20 * 4096)
    with open("/proc/self/maps") as maps:
        print(sum(".journal" in line for line in maps))
    """
    )

    assert int(target.output(code)) <= 3


def test_texts_when_too_many(own_target: Target) -> None:
    """The table of texts is bounded; texts beyond it have no id, and known ones keep theirs."""
    code = (
        WRITE
        + """
    ids = [writer.text(str(number)) for number in range(10000)]
    print(ids[6143], ids[6144], writer.text("0"))
    """
    )

    assert own_target.output(code) == "6144 0 1\n"


def test_note_when_repeated(own_target: Target) -> None:
    """A note is written once, however often it is made."""
    own_target.output(WRITE + "    for _ in range(5): writer.note('patch-failed', 'why')")

    journal = own_target.journal()
    (note,) = journal.of(wire.NOTE)
    assert (journal.texts[note.ref], journal.texts[note.a]) == ("patch-failed", "why")


@pytest.mark.parametrize(
    ("program", "rank", "expected"),
    [("torchrun", None, True), ("torchrun", "0", False), ("train.py", None, False)],
)
def test_header_when_process_starts_ranks(
    own_target: Target, program: str, rank: str | None, expected: bool
) -> None:
    """The process that starts the ranks is told from a rank."""
    extra = {} if rank is None else {"RANK": rank}

    own_target.output(WRITE + f"    sys.argv[0] = '/bin/{program}'; write(1)", **extra)

    assert own_target.journal().header["is_launcher"] is expected


def test_folder_of_journals_when_there(own_target: Target) -> None:
    """Journals lie in the run folder under the name that the layout promises."""
    own_target.output(WRITE + "    write(1)")

    (path,) = Path(own_target.run_dir, "journals").iterdir()
    role, pid, started = path.name[: -len(wire.JOURNAL_SUFFIX)].split("-")
    assert (role, [int(pid)]) == ("agent", own_target.booted())
    assert int(started) <= own_target.journal().header["start_mono_ns"]


def test_folder_of_journals_when_another_process_makes_it(own_target: Target) -> None:
    """Two processes that find no folder at the same moment both record."""
    code = """
    make = os.mkdir
    def second(path, *args):
        make(path, *args)
        make(path, *args)
    os.mkdir = second
    write(3)
"""

    own_target.output(WRITE + code)

    assert len(own_target.journal().of(wire.ASK)) == 3

"""Record layouts of a journal: the one truth shared by those who write and those who read.

A journal is one file a process: a header page, then records of 64 bytes each.

    header   MAGIC 8s | schema u32 | json_bytes u32 | progress 6 x i64 | json text, padded to HEADER_BYTES
    record   commit u64 | kind u16 | flags u16 | ref u32 | t0 i64 | t1 i64 | a i64 | b i64 | c i64 | d i64

NOTE [commit last]
    `commit` is written after the body, as one aligned 8-byte store, and is `slot + 1`. A record whose
    commit word differs (a writer that was killed, a file cut short) is skipped by readers; later slots
    may still be whole, because slots are reserved first and several threads fill them side by side.

Times are CLOCK_MONOTONIC nanoseconds (`time.monotonic_ns`), the same clock in all processes of a host.

SCHEMA_VERSION history
    1   first layout
"""

import struct

SCHEMA_VERSION = 1
MAGIC = b"WHYIDLE\x01"
HEADER_BYTES = 4096
RECORD_BYTES = 64

HEADER = struct.Struct("<8sII")
"""magic, schema version, length of the JSON text at HEADER_JSON_OFFSET."""
PROGRESS_OFFSET = 16
"""Where the live counters start: one i64 each, updated in place, in the order of PROGRESS_FIELDS."""
PROGRESS_FIELDS = (
    "step_count",  # training steps asked for so far by this process
    "record_count",  # slots reserved when the last segment was begun, or at an orderly end
    "dropped_count",  # records not written (budget used up, disk full)
    "sample_stride",  # every how many-th batch has its samples recorded; 1 = all
    "heartbeat_ns",  # monotonic time of the last ask or fetch
    "closed",  # 1 after an orderly end of the process
)
HEADER_JSON_OFFSET = 64

RECORD = struct.Struct("<QHHIqqqqqq")
BODY = struct.Struct("<HHIqqqqqq")
"""A record without its commit word: written at slot offset + 8, before the commit."""

TEXT_BYTES = 48
TEXT_MORE = 0x8000
"""Flag of a TEXT record: the text goes on in the next TEXT record with the same ref."""

# --- kinds: the agent -------------------------------------------------------------------------
TEXT = 1
"""An interned text. ref = text id (1, 2, ... in each journal), flags = bytes in this chunk (<= 48) | TEXT_MORE;
the payload fills t0..d. Texts with equal ids are joined in slot order. Id 0 means "none"."""
LOADER = 2
"""An iteration over a DataLoader begins. ref = iteration id (unique in the process), t0..t1 = its creation
(worker start and priming included), a = loader id, b = num_workers, c = prefetch_factor (0 if none),
d = batch_size (-1 if none); flags: LOADER_*."""
LOADER_PLACE = 3
"""Where an iteration's loader is used and built. ref = iteration id, t0 = text id of the file of the loop,
t1 = its line, a = text id of the file that built the loader, b = its line, c = text id of the data set's
class, d = text id of the multiprocessing start method."""
ASK = 4
"""One call of next() on a loader. ref = iteration id, t0 = asked, t1 = got, a = batch index in the iteration,
b = id of the awaited worker (-1: none), c = batches already received at the ask (-1: unknown),
d = time spent drawing indices inside this call, ns; flags: ASK_*."""
RECEIVE = 5
"""The main process took one item off the result queue. ref = iteration id, t0..t1 = the call, a = batch index,
b = CPU time of the thread in the call, ns; flags: RECEIVE_*."""
INDEX = 6
"""The main process drew the indices of one batch. ref = iteration id, t0..t1, a = batch index,
b = CPU time, ns (-1: not measured). Only draws of at least 50 us are recorded; ASK.d has the sum of all."""
FETCH = 7
"""One batch was made. ref = pass (how often the worker has begun an iteration, from 0; for num_workers=0 the
iteration id), t0..t1 = the fetch, a = batch index, b = CPU time, ns (-1 unknown), c = run-queue wait, ns
(-1 unknown), d = when the worker got the indices, monotonic ns (0: unknown or num_workers=0); flags: FETCH_*."""
WORKER = 8
"""The main process names a worker. ref = iteration id, a = worker id, b = pid, c = pass of that worker."""
FETCH_COST = 9
"""More about the same fetch. ref = pass, t0..t1 = its collate (0, 0 without one), a = batch index,
b = minor faults, c = major faults, d = CPU time of all the process' threads, ns. Each is -1 where it was not taken:
of short fetches only some have it."""
PAYLOAD = 10
"""What the batch weighs. ref = pass, t0 = samples, t1 = text id of the collate function, a = batch index,
b = bytes in tensors and arrays, c = count of tensors and arrays, d = count of leaves; flags: PAYLOAD_*."""
SAMPLE = 11
"""One sample was made. ref = pass, t0..t1, a = batch index, b = data set index (-1: not a number),
c = position in the batch, d = CPU time, ns (-1: not measured)."""
TRANSFORM = 12
"""One transform of a Compose-like container ran. ref = pass, t0..t1, a = batch index, b = text id of its name,
c = position of the sample in the batch, d = nesting depth (0 = outermost)."""
HANDOFF = 13
"""A worker's feeder thread sent a batch. ref = pass, t0 = put on the queue, t1 = sent, a = batch index,
b = when sending began, monotonic ns, c = CPU time of the feeder thread for it, ns (-1 unknown),
d = bytes written to the pipe."""
PIN = 14
"""The pin thread pinned a batch. ref = iteration id (0: unknown), t0..t1, a = batch index, b = CPU time, ns."""
WORKER_START = 15
"""A worker process came up. ref = 0, t0 = entered the worker loop, t1 = asked for its first indices,
a = worker id, b = start of the process, monotonic ns, c = parent pid."""
MARK = 16
"""Something the loop's thread did. ref = MARK_*, t0..t1, a = CPU time, ns (-1: not measured any more), b = text id of
the file of the calling line (0: unknown), c = that line, d = detail (gc: generation)."""
DEVICE_BUSY = 17
"""The device worked. ref = device id, t0..t1 = busy on the host's clock, a = when the work was launched."""
DEVICE_IDLE = 18
"""The device had nothing to do between two marks. ref = device id, t0..t1 = on the host's clock,
a = error of the alignment, ns, b = iteration id, c = batch index."""
DEVICE = 19
"""A device is watched. ref = device id, a = DEVICE_KIND_*, b = text id of its name, c = clock error, ns."""
STACK = 20
"""One stack sample. ref = STACK_ROLE_*, t0 = when this thread was sampled before (or first seen), t1 = now,
a = text id of the stack | text id of the descriptor's target << 32, b = native thread id,
c = system call number (-2: running or unknown, -1: blocked outside a call, a page fault),
d = how late the sampler ran, ns; flags: STACK_*. A stack's text is frame text ids in decimal, leaf first,
joined by ","; a frame's text is "file\\0function\\0line"."""
NOTE = 21
"""The agent says something about itself. ref = text id of a slug, t0, a = text id of the message."""
LOSS = 22
"""A loss of a trial. ref = 0, t0 = when it was read, a = which backward pass, from 0, b = the bits of the double."""

# --- kinds: the observer ----------------------------------------------------------------------
THREAD = 40
"""The observer looked at a thread. ref = text id of what it waits for (path, socket, ...; 0 none), t0 = previous
look (or first), t1 = now, a = pid << 32 | tid, b = (system call number & 0xffffffff) | state letter << 32
| mount id << 40 (0: none), c = time on a CPU since it began, ns (-1 unknown), d = time waiting for a CPU
since it began, ns (-1 unknown); flags: WAIT_*. A system call number of 0xfffffffe means running,
0xffffffff outside any call."""
PROCESS = 41
"""The observer saw a process of the run. ref = text id of its name, t0 = start, t1 = end (0: alive), a = pid,
b = parent pid, c = PROCESS_ROLE_*, d = count of CPUs it may use."""
COUNTER = 42
"""A number at a time. ref = text id of its name (unit included), t0 = t1 = when, a = value, b = pid (0: machine)."""
MOUNT = 43
"""A mounted file system. ref = text id of "fstype\\0mount point", a = mount id."""

# --- flags and enumerations -------------------------------------------------------------------
# fmt: off
LOADER_PIN, LOADER_PERSISTENT, LOADER_IN_ORDER, LOADER_ITERABLE, LOADER_RESUMED = 1, 2, 4, 8, 16
ASK_READY, ASK_ENDED, ASK_RAISED = 1, 2, 4
"""READY: the batch had been received before the ask. ENDED: the answer was StopIteration."""
RECEIVE_WAS_THERE, RECEIVE_EMPTY = 1, 2
"""WAS_THERE: an item lay in the queue when the call began. EMPTY: the call timed out with nothing."""
FETCH_BATCHED, FETCH_RAISED, FETCH_THINNED = 1, 2, 4
"""BATCHED: one __getitems__ call. THINNED: this batch's samples were not recorded."""
PAYLOAD_PARTIAL = 1
"""The batch has more leaves than were counted; the numbers are lower bounds."""
STACK_ON_CPU, STACK_BLOCKED, STACK_IN_FETCH, STACK_IN_NEXT, STACK_IN_COLLATE = 1, 2, 4, 8, 16
STACK_ROLE_LOOP, STACK_ROLE_WORKER, STACK_ROLE_PIN, STACK_ROLE_OTHER = 1, 2, 3, 4
MARK_BACKWARD, MARK_OPTIMIZER, MARK_SYNC, MARK_GC, MARK_SAVE, MARK_COLLECTIVE = 1, 2, 3, 4, 5, 6
DEVICE_KIND_SIMULATED, DEVICE_KIND_CUDA = 1, 2
PROCESS_ROLE_TRAINING, PROCESS_ROLE_WORKER, PROCESS_ROLE_LAUNCHER, PROCESS_ROLE_OTHER = 1, 2, 3, 4
# fmt: on

(
    WAIT_NONE,  # running or runnable
    WAIT_QUEUE,  # at its index or result queue: nothing to do
    WAIT_FILE,  # a call on a regular file or directory
    WAIT_PAGE_FAULT,  # a file-backed page or swap
    WAIT_SOCKET,
    WAIT_PIPE,  # a pipe that is no loader queue: writing results, talking to a child
    WAIT_LOCK,  # a lock shared with another process (semaphore, flock)
    WAIT_THREAD,  # a lock inside the process: another of its threads
    WAIT_SLEEP,
    WAIT_CHILD,  # waits for a child process
    WAIT_DEVICE,  # a call on a device file
    WAIT_OTHER,
) = range(12)
"""What a blocked thread waits for (THREAD.flags)."""

KIND_NAMES = {
    LOADER: "loader",
    LOADER_PLACE: "loader_place",
    ASK: "ask",
    RECEIVE: "receive",
    INDEX: "index",
    FETCH: "fetch",
    WORKER: "worker",
    FETCH_COST: "fetch_cost",
    PAYLOAD: "payload",
    SAMPLE: "sample",
    TRANSFORM: "transform",
    HANDOFF: "handoff",
    PIN: "pin",
    WORKER_START: "worker_start",
    MARK: "mark",
    DEVICE_BUSY: "device_busy",
    DEVICE_IDLE: "device_idle",
    DEVICE: "device",
    STACK: "stack",
    NOTE: "note",
    LOSS: "loss",
    THREAD: "thread",
    PROCESS: "process",
    COUNTER: "counter",
    MOUNT: "mount",
}
"""Kind to the name of its table."""

DETAIL_KINDS = frozenset((SAMPLE, TRANSFORM, STACK))
"""Kinds that are thinned first when a journal grows long."""

# --- environment: how the launcher speaks to the agent ------------------------------------------
ENV_RUN_DIR = "WHYIDLE_RUN_DIR"
"""Folder that takes the journals. Absent: the agent stays out."""
ENV_STEPS = "WHYIDLE_STEPS"
"""End the training after this many steps."""
ENV_SHADOWED_PATH = "WHYIDLE_SHADOWED_PYTHONPATH"
"""PYTHONPATH as the person had set it; absent when it was unset. Children of the target see the changed one."""
ENV_TRIAL = "WHYIDLE_TRIAL"
"""What a trial changes, as JSON; see trial.py. Absent: nothing is changed."""
CONTROL_FILE = "control"
"""A file of CONTROL_BYTES in the run folder, mapped by agents: i64 stop_at_step (0: none), i64 reserved x 7."""
CONTROL_BYTES = 64
JOURNAL_SUFFIX = ".journal"
"""Journals are named "<role>-<pid>-<start monotonic ns>.journal"; roles: agent, observer."""

"""Looking a thousand times a second at a thread whose frames come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.agent.conftest import Target

PROGRAM = """
import time
from whyidle_agent import stacks, wire, writer

stacks.PERIOD_NS, stacks.LOOK_MARGIN_NS = (100000, 300000), 100000
notes, texts = [], {}
writer.enabled = lambda: True
writer.emit = lambda *fields: None
writer.text = lambda text: texts.setdefault(text, len(texts) + 1)
writer.note = lambda slug, message: notes.append(message)

class Slow:
    def __del__(self):
        time.sleep(0)

def numbers():
    for number in range(3):
        block = bytearray(1 << 21)
        yield number

def deep(depth):
    slow, block = Slow(), bytearray(1 << 21) if depth % 5 == 0 else None
    return deep(depth - 1) if depth else sum(number for number in numbers())

import sys
sys.setswitchinterval(0.0005)
stacks.watch(wire.STACK_ROLE_LOOP)
end = time.monotonic() + 2
while time.monotonic() < end:
    deep(20)
    try:
        raise ValueError(bytearray(1 << 20))
    except ValueError:
        pass
stacks._at_exit()
print(notes, stacks._tick_count > 20, any("deep" in text for text in texts))
"""


@pytest.mark.slow
def test_frames_that_come_and_go_are_never_mistaken(target: Target) -> None:
    """No look raises, crashes, or sees something that is no frame, under any interpreter."""
    assert target.output(PROGRAM) == "[] True True\n"


COLLECTED = """
import gc, sys, threading, time
from whyidle_agent import stacks, wire, writer

stacks.PERIOD_NS, stacks.LOOK_MARGIN_NS = (100000, 300000), 100000
notes = []
writer.enabled = lambda: True
writer.emit = lambda *fields: None
writer.note = lambda slug, message: notes.append(message)
own = threading.get_ident()

def give_way(phase, info):
    if threading.get_ident() != own:
        time.sleep(0.0002)

class Node:
    def __init__(self):
        self.itself = self

def deep(depth):
    node = Node()
    return deep(depth - 1) if depth else [Node(), Node()]

gc.callbacks.append(give_way)
gc.set_threshold(60, 10, 10)
sys.setswitchinterval(0.0005)
stacks.watch(wire.STACK_ROLE_LOOP)
end, count = time.monotonic() + 2, 0
while time.monotonic() < end:
    deep(count % 40)
    count += 1
stacks._at_exit()
print(notes, stacks._tick_count > 20, gc.isenabled(), gc.get_threshold())
"""


@pytest.mark.slow
def test_frames_when_collections_give_way(target: Target) -> None:
    """No collection begins in the midst of a look: its callbacks would let the watched thread go on."""
    assert target.output(COLLECTED) == "[] True True (60, 10, 10)\n"

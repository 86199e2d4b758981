"""A peer: `prepare(head)` makes its inputs and returns the call that is timed, `answers` gives the
numbers of the call's result, for comparison with kvbench's."""

from dataclasses import dataclass
from collections.abc import Callable

PEERS = {}  # (task, name) -> Peer


@dataclass
class Peer:
    task: str
    name: str
    prepare: Callable
    answers: Callable


def peer(task, name, answers):
    def add(prepare):
        PEERS[task, name] = Peer(task, name, prepare, answers)
        return prepare
    return add

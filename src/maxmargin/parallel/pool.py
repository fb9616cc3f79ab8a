"""Things that threads borrow, each for one call: room to work in that takes longer to make than to use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Pool(Generic[T]):
    """What is idle now; a list gives and takes one thing at a time, whatever threads ask."""

    def __init__(self) -> None:
        self.idle: list[T] = []

    @contextmanager
    def borrow(self, make: Callable[[], T]) -> Iterator[T]:
        """Something that nobody else has, made if nothing is idle."""
        try:
            one = self.idle.pop()
        except IndexError:
            one = make()
        yield one
        # Not after an exception: what is zero between uses may not be.
        self.idle.append(one)

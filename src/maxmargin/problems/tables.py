"""Operations on one slot of a factor's table.

A table of joint states in C order, seen from the variable in slot j, has shape (outer, n_states, stride): outer counts
the joint states of the variables before it, stride those after it. `at` is where the table begins; `to` is where the
vector of length n_states begins. Pairs of binary variables are by far the most common tables, and loops of length 2
cost more than they do, so they are spelled out: state k then has the two entries k * stride and k * stride + 3 -
stride. Of the last variable, whose stride is 1, all states are done at once, which compiles to vector instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.jit import inner


@inner
def slot_max(table: Any, at: int, outer: int, n_states: int, stride: int, out: Any, to: int) -> None:
    """out[to + k] = the largest entry whose variable is in state k."""
    if n_states == 2 and outer * stride == 2:
        out[to] = max(table[at], table[at + 3 - stride])
        out[to + 1] = max(table[at + stride], table[at + 3])
        return
    for k in range(n_states):
        out[to + k] = -np.inf
    y = at
    if stride == 1:
        for _ in range(outer):
            for k in range(n_states):
                out[to + k] = table[y + k] if table[y + k] > out[to + k] else out[to + k]
            y += n_states
        return
    for _ in range(outer):
        for k in range(n_states):
            most = out[to + k]
            for _ in range(stride):
                most = max(most, table[y])
                y += 1
            out[to + k] = most


@inner
def slot_sum(table: Any, at: int, outer: int, n_states: int, stride: int, out: Any, to: int) -> None:
    """out[to + k] += the sum of the entries whose variable is in state k."""
    if n_states == 2 and outer * stride == 2:
        out[to] += table[at] + table[at + 3 - stride]
        out[to + 1] += table[at + stride] + table[at + 3]
        return
    y = at
    if stride == 1:
        for _ in range(outer):
            for k in range(n_states):
                out[to + k] += table[y + k]
            y += n_states
        return
    for _ in range(outer):
        for k in range(n_states):
            total = 0.0
            for _ in range(stride):
                total += table[y]
                y += 1
            out[to + k] += total


@inner
def slot_add(table: Any, at: int, outer: int, n_states: int, stride: int, vector: Any, to: int, sign: float) -> None:
    """Add sign * vector[to + k] to the entries whose variable is in state k."""
    if n_states == 2 and outer * stride == 2:
        low, high = sign * vector[to], sign * vector[to + 1]
        table[at] += low
        table[at + 3 - stride] += low
        table[at + stride] += high
        table[at + 3] += high
        return
    y = at
    if stride == 1:
        for _ in range(outer):
            for k in range(n_states):
                table[y + k] += sign * vector[to + k]
            y += n_states
        return
    for _ in range(outer):
        for k in range(n_states):
            change = sign * vector[to + k]
            for _ in range(stride):
                table[y] += change
                y += 1


@inner
def slot_scale(table: Any, at: int, outer: int, n_states: int, stride: int, vector: Any, to: int) -> None:
    """Multiply the entries whose variable is in state k by vector[to + k]."""
    if n_states == 2 and outer * stride == 2:
        table[at] *= vector[to]
        table[at + 3 - stride] *= vector[to]
        table[at + stride] *= vector[to + 1]
        table[at + 3] *= vector[to + 1]
        return
    y = at
    if stride == 1:
        for _ in range(outer):
            for k in range(n_states):
                table[y + k] *= vector[to + k]
            y += n_states
        return
    for _ in range(outer):
        for k in range(n_states):
            for _ in range(stride):
                table[y] *= vector[to + k]
                y += 1

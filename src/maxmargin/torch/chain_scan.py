"""Recursions along chains, for a whole batch at a time.

Conventions
-----------
``unary`` is (B, T, K), with the scores of the first and the last tag already in it; ``transitions`` is (K, K), row: tag, column:
next tag, or (B, T-1, K, K); ``lengths`` is (B,), None if all are T. Scores at padding are finite and do not matter. A forbidden
state scores `FORBIDDEN`, not -inf: the difference of two of those is 0 and no NaN, and exp gives 0 all the same.

The scaled scan
---------------
With e_t = exp(u_t - max u_t) and E = exp(A - max A), the forward and the backward messages are products with one matrix,

    a_t = (a_{t-1} E) * e_t            b_t = e_t * (E b_{t+1})

so that a step of both is one batched product and one multiplication, if the second runs along the reversed sentence. Every few
steps a and b are divided by their sums. The marginals are a_t (E b_{t+1}), normalised. That is right as long as what underflows is
negligible, which the sums tell: where all of them are above `_LEAST` the lost terms are below rounding. Where they are not, the
scan is done in float64, and after that in the log-semiring (`log_scan`), which is always right, and slower.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from maxmargin.errors import DataError

#: The score of what is forbidden.
FORBIDDEN = -1e30
#: The smallest sum of a scaled message that is trusted, and how many steps go by between two sums.
_LEAST = {torch.float32: 1e-18, torch.float64: 1e-140}
_STEPS = 4


class Scan(NamedTuple):
    """What the scaled scan leaves for the gradient; positions first."""

    #: Forward messages with the position's own scores; backward ones without and with them: (T, B, K).
    forward: Tensor
    backward: Tensor
    backward_own: Tensor
    #: exp of the transitions' scores but a constant, (K, K) or (B, T-1, K, K).
    factor: Tensor
    #: Sums of forward * backward (T, B, 1), and of the forward message, without own scores, * backward_own (T-1, B, 1).
    mass: Tensor
    pair_mass: Tensor
    #: Which positions (T, B, 1) are there; None if all are.
    live: Tensor | None


# ------------------------------------------------------------------------------------------------------- log-partition


class LogPartition(torch.autograd.Function):
    """The log-partition (B,) of chains; the gradient is the marginals, and is differentiable itself."""

    @staticmethod
    def forward(ctx: Any, unary: Tensor, transitions: Tensor, lengths: Tensor | None) -> Tensor:
        """Log-partition by the scaled scan where that is right, else by the log-semiring."""
        ctx.lengths = lengths
        ctx.scan = None
        for dtype in (unary.dtype, torch.float64)[unary.dtype == torch.float64 :]:
            value, scan = scaled_scan(unary.to(dtype), transitions.to(dtype), lengths)
            if scan is not None:
                ctx.scan = scan
                break
        else:
            value = log_scan(unary, transitions, lengths)
            check_feasible(value, unary, transitions)
        ctx.save_for_backward(unary, transitions)
        return value.to(unary.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Marginals; with a graph of their own if one is asked for."""
        unary, transitions = ctx.saved_tensors
        if torch.is_grad_enabled() or ctx.scan is None:
            return (*_plain_gradient(unary, transitions, ctx.lengths, grad), None)
        wanted = ctx.needs_input_grad
        scan: Scan = ctx.scan
        weight = grad.to(scan.mass.dtype)[:, None]
        of_unary = of_pairs = None
        if wanted[0]:
            shares = scan.forward * scan.backward * _quotient(weight, scan.mass, scan.live)
            of_unary = shares.to(unary.dtype).transpose(0, 1)
        if wanted[1]:
            of_pairs = _pair_gradient(scan, weight).to(unary.dtype)
        return of_unary, of_pairs, None


def _plain_gradient(unary: Tensor, transitions: Tensor, lengths: Tensor | None, grad: Tensor) -> tuple[Tensor, ...]:
    create = torch.is_grad_enabled()
    with torch.enable_grad():
        inputs = [
            one if create and one.requires_grad else one.detach().requires_grad_() for one in (unary, transitions)
        ]
        value = log_scan(inputs[0], inputs[1], lengths)
        return tuple(torch.autograd.grad(value, inputs, grad, create_graph=create, materialize_grads=True))


def _pair_gradient(scan: Scan, weight: Tensor) -> Tensor:
    """Weighted sum of the marginals of pairs (K, K), or each of them (B, T-1, K, K)."""
    live = None if scan.live is None else scan.live[1:]
    after = scan.backward_own[1:] * _quotient(weight, scan.pair_mass, live)
    before = scan.forward[:-1]
    if live is not None:
        # Messages at padding may be anything.
        before, after = torch.where(live, before, 0.0), torch.where(live, after, 0.0)
    if scan.factor.dim() == 2:
        return (before.flatten(0, 1).T @ after.flatten(0, 1)) * scan.factor
    return (before[..., None] * after[..., None, :]).transpose(0, 1) * scan.factor


def _quotient(weight: Tensor, mass: Tensor, live: Tensor | None) -> Tensor:
    shares = weight / mass
    return shares if live is None else torch.where(live, shares, 0.0)


def scaled_scan(unary: Tensor, transitions: Tensor, lengths: Tensor | None) -> tuple[Tensor, Scan | None]:
    """Log-partition (B,) and messages; no messages where the scan is not to be trusted, or scores are NaN."""
    n, length, _ = unary.shape
    top = unary.amax(2, keepdim=True).transpose(0, 1).contiguous()
    own = (unary.transpose(0, 1) - top).exp_()
    shared = transitions.dim() == 2
    highest = transitions.amax() if shared else transitions.flatten(2).amax(2)
    factor = (transitions - (highest if shared else highest[..., None, None])).exp_()
    at = torch.arange(length, device=unary.device)[:, None]
    live = None if lengths is None else at < lengths
    # The place of each position in the reversed sentence, which begins at 0 again.
    places = None if lengths is None else (lengths - 1 - at).clamp_(min=0) * n + torch.arange(n, device=unary.device)
    both = torch.stack([own, _turn(own, places)], 1)
    if shared:
        steps = [torch.stack([factor, factor.mT])] * length
    else:
        turned = _turn(factor.transpose(0, 1), None if places is None else places[1:]).mT
        pairs = torch.stack([factor.transpose(0, 1), turned], 1)
        steps = [pairs, *pairs.flatten(1, 2).unbind(0)]
    messages, states = torch.empty_like(both), torch.empty_like(both)
    sums = unary.new_ones((length - 1) // _STEPS + 1, 2, n, 1)
    _scan(both, steps, messages, states, sums, shared)

    forward, backward, backward_own = states[:, 0], _turn(messages[:, 1], places), _turn(states[:, 1], places)
    mass = (forward * backward).sum(2, keepdim=True)
    pair_mass = (messages[1:, 0] * backward_own[1:]).sum(2, keepdim=True)
    value, fine = _total(top, highest, sums, forward, lengths)
    trusted = mass[..., 0] > _LEAST[unary.dtype]
    # Where all states of a position are forbidden, or all transitions, the constants taken out tell.
    fine = fine & (trusted if live is None else trusted | ~live).all() & (value > FORBIDDEN / 10).all()
    if not bool(fine):
        return value, None
    live = None if live is None else live[..., None]
    return value, Scan(forward, backward, backward_own, factor, mass, pair_mass, live)


def _scan(both: Tensor, steps: list[Tensor], messages: Tensor, states: Tensor, sums: Tensor, shared: bool) -> None:
    """All messages (T, 2, B, K): states = messages * both; a sum of every few steps."""
    length, _, n, k = both.shape
    states[0] = both[0]
    messages[0] = 1.0
    shape = (length, 2, n, k) if shared else (length, 2 * n, 1, k)
    owns, ins, outs, sum_of = (
        both.unbind(0),
        messages.view(shape).unbind(0),
        states.view(shape).unbind(0),
        sums.unbind(0),
    )
    plain, plain_in = states.unbind(0), messages.unbind(0)
    for t in range(1, length):
        torch.bmm(outs[t - 1], steps[t], out=ins[t])
        torch.mul(plain_in[t], owns[t], out=plain[t])
        if t % _STEPS == 0:
            total = sum_of[t // _STEPS]
            torch.sum(plain[t], 2, keepdim=True, out=total)
            plain[t].div_(total)


def _total(
    top: Tensor, highest: Tensor, sums: Tensor, forward: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Log-partition (B,) from the constants taken out, and whether all sums that count can be trusted."""
    length, n, _ = forward.shape
    shared = highest.dim() == 0
    constants, logs = top[..., 0], sums[:, 0, :, 0].log()
    if lengths is None:
        value = constants.sum(0) + logs.sum(0) + forward[-1].sum(1).log()
        value = value + ((length - 1) * highest if shared else highest.sum(1))
        return value, (sums > _LEAST[top.dtype]).all()
    last = lengths - 1
    at = torch.arange(length, device=top.device)[:, None]
    groups = at[: len(sums)] * _STEPS <= last
    value = torch.where(at <= last, constants, 0.0).sum(0) + torch.where(groups, logs, 0.0).sum(0)
    end = forward[last, torch.arange(n, device=top.device)]
    value = value + end.sum(1).log()
    value = value + (last * highest if shared else torch.where(last[:, None] >= at[1:].T, highest, 0.0).sum(1))
    trusted = (sums[..., 0] > _LEAST[top.dtype]) | ~groups[:, None]
    return value, trusted.all()


def _turn(values: Tensor, places: Tensor | None) -> Tensor:
    """Each sentence's positions (T, B, ...) in reverse."""
    if places is None:
        return values.flip(0)
    # Transitions have one position less than there are; the clamped places of padding are those of the first position.
    rows = values.flatten(0, 1).index_select(0, places.flatten())
    return rows.view(values.shape)


def log_messages(unary: Tensor, transitions: Tensor, lengths: Tensor | None, total: Any) -> tuple[list[Tensor], Tensor]:
    """Forward messages (B, K) of each position, in the log-semiring or the max-semiring, and those of the last positions."""
    messages = [unary[:, 0]]
    for t in range(1, unary.shape[1]):
        step = transitions if transitions.dim() == 2 else transitions[:, t - 1]
        messages.append(total(messages[-1][:, :, None] + step, 1) + unary[:, t])
    if lengths is None:
        return messages, messages[-1]
    # Messages at padding are made, and not read: that is less work than to keep the last ones.
    return messages, torch.stack(messages)[lengths - 1, torch.arange(len(unary), device=unary.device)]


def log_scan(unary: Tensor, transitions: Tensor, lengths: Tensor | None) -> Tensor:
    """Log-partition (B,) in the log-semiring, by operations that autograd knows."""
    return torch.logsumexp(log_messages(unary, transitions, lengths, torch.logsumexp)[1], 1)


def check_feasible(values: Tensor, unary: Tensor, transitions: Tensor) -> None:
    """Raise a sentence if a value (B,) is that of no allowed labeling, or not a number."""
    if bool((values > FORBIDDEN / 10).all()):
        return
    m = int((~(values > FORBIDDEN / 10)).nonzero()[0, 0])
    if bool(torch.isnan(values[m])):
        raise DataError(f"Example {m} has a score of NaN; scores must be finite, or -inf to forbid a state.", example=m)
    raise DataError(f"Example {m}: every labeling is forbidden by the hard constraints.", example=m)


# ------------------------------------------------------------------------------------------------------- labelings


def best_labels(unary: Tensor, transitions: Tensor, lengths: Tensor | None) -> Tensor:
    """The best labeling (B, T) of each chain."""
    messages, last = log_messages(unary, transitions, lengths, torch.amax)
    check_feasible(last.amax(1), unary, transitions)
    return _walk_back(messages, last, transitions, lengths, lambda scores: scores.argmax(-1))


def sampled_labels(
    unary: Tensor, transitions: Tensor, lengths: Tensor | None, n: int, generator: torch.Generator | None
) -> Tensor:
    """Labelings (n * B, T), n draws of the first chain to the last, one draw of all of them after another."""
    messages, last = log_messages(unary, transitions, lengths, torch.logsumexp)
    check_feasible(last.amax(1), unary, transitions)
    messages = [one.repeat(n, 1) for one in messages]
    if transitions.dim() == 4:
        transitions = transitions.repeat(n, 1, 1, 1)
    lengths = None if lengths is None else lengths.repeat(n)

    def draw(scores: Tensor) -> Tensor:
        return (scores + gumbel(scores, generator)).argmax(-1)

    return _walk_back(messages, last.repeat(n, 1), transitions, lengths, draw)


def gumbel(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Gumbel noise: the argmax of scores and noise is a draw from their softmax."""
    noise = torch.empty_like(like).exponential_(generator=generator)
    return -noise.clamp_(min=torch.finfo(like.dtype).tiny).log_()


def _walk_back(
    messages: list[Tensor], last: Tensor, transitions: Tensor, lengths: Tensor | None, choose: Any
) -> Tensor:
    now = choose(last)
    labels = [now]
    rows = torch.arange(len(now), device=now.device)
    shared = transitions.mT.contiguous() if transitions.dim() == 2 else None
    inside = None if lengths is None else torch.arange(len(messages), device=now.device)[:, None] < lengths
    for t in range(len(messages) - 2, -1, -1):
        into = shared[now] if shared is not None else transitions[rows, t, :, now]
        before = choose(messages[t] + into)
        # At padding the label of the last position goes on.
        now = before if inside is None else torch.where(inside[t + 1], before, now)
        labels.append(now)
    return torch.stack(labels[::-1], 1)


def top_labels(unary: Tensor, transitions: Tensor, lengths: Tensor | None, k: int) -> Tensor:
    """The k best labelings (k, B, T), best first; -1 where there are fewer."""
    n, length, states = unary.shape
    nothing = 2 * FORBIDDEN
    lists = torch.cat([unary[:, 0, None], unary.new_full((n, k - 1, states), nothing)], 1)
    choices = []
    for t in range(1, length):
        step = transitions if transitions.dim() == 2 else transitions[:, t - 1, None]
        # An entry of the new list is a rank and a state before.
        sums = (lists[..., None] + step).clamp(min=nothing).flatten(1, 2)
        best, choice = _padded_topk(sums, k, 1, nothing)
        best = (best + unary[:, t, None]).clamp(min=nothing)
        if lengths is not None:
            inside = (t < lengths)[:, None, None]
            best = torch.where(inside, best, lists)
            stay = torch.arange(k * states, device=unary.device).reshape(1, k, states)
            choice = torch.where(inside, choice, stay)
        choices.append(choice)
        lists = best
    best, now = _padded_topk(lists.flatten(1, 2), k, 1, nothing)
    check_feasible(best[:, 0], unary, transitions)
    labels = [now % states]
    for choice in reversed(choices):
        now = choice.flatten(1, 2).gather(1, now)
        labels.append(now % states)
    found = torch.stack(labels[::-1], 2).transpose(0, 1)
    return torch.where((best > FORBIDDEN / 10).T[..., None], found, -1)


def _padded_topk(values: Tensor, k: int, dim: int, nothing: float) -> tuple[Tensor, Tensor]:
    """The k largest along a dimension, filled up where there are fewer."""
    size = values.shape[dim]
    best, place = values.topk(min(k, size), dim)
    if size >= k:
        return best, place
    shape = list(best.shape)
    shape[dim] = k - size
    return torch.cat([best, best.new_full(shape, nothing)], dim), torch.cat([place, place.new_zeros(shape)], dim)

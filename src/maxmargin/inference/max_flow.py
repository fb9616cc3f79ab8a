"""Maximum flow, and the strongly connected components of what it leaves.

The two terminals are not stored: `excess` of a node is the residual capacity of its arc from the source, or minus that
of its arc to the sink; no node has both. The arcs of a node are consecutive, and the reverse of an arc is an arc.
Residual capacities of at most `tiny` count as saturated.

Complexity
----------
Flow along single arcs first; then, on sparse graphs, search trees that grow from both terminals and are kept from path to
path (Boykov and Kolmogorov, "An experimental comparison of min-cut/max-flow algorithms for energy minimization in
vision", PAMI 2004), since on grids most of a search is the same as the one before; on dense graphs, levels (Dinic), where
a phase costs about O(|E|) and a few of them do, while trees would look at all arcs of a node to mend one of them. Measured,
each was the faster one in its place. Where all graphs are of one kind, their type says so (`SparseFlow`, `DenseFlow`), and the
other algorithm is not compiled. Components (Tarjan) cost O(|E|) of the nodes that are asked for.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct, inner, inner_overload


def _node_type(*names: str) -> np.dtype[Any]:
    """A record of eight numbers or fewer, in half a line of the cache."""
    places = [4 * k for k in range(len(names))]
    return np.dtype({"names": names, "formats": [np.int32] * len(names), "offsets": places, "itemsize": 32}, align=True)


#: A node in search trees: first arc, the tree it is in, the arc to its parent (or TERMINAL or ORPHAN), when its distance to the
#: terminal was measured, that distance, whether it waits in the queue; and two lists that lie along the records.
NODE = _node_type("first", "tree", "parent", "stamp", "distance", "queued", "queue", "orphans")
#: The same memory in Dinic's algorithm: the level, the next arc to try; and two lists, the arcs of a path and nodes by level.
LEVEL = _node_type("first", "tree", "level", "cursor", "path", "queue")
#: The same memory in Tarjan's algorithm: when it was entered (0 for not yet), the next arc to follow, its component, the earliest
#: node it leads back to; and two lists, the nodes that are being searched and those without a component.
PART = _node_type("first", "tree", "order", "cursor", "component", "low", "calls", "waiting")
#: An arc: the node it leads to, the arc back.
ARC = np.dtype([("head", np.int32), ("reverse", np.int32)], align=True)

FREE, SOURCE, SINK = range(3)
TERMINAL, ORPHAN = -1, -2
FAR = 2**30
#: `component` of a node that has none yet, and of one that is left out.
NOT_YET, OUTSIDE = -1, -2

# With more arcs a node than this, levels are faster than search trees.
DENSE = 12


class Flow(Struct):
    """A graph and a flow through it, or room for them."""

    #: A record per node, and one more that holds the end of the arcs; three names for the same memory.
    nodes: Any
    levels: Any
    parts: Any
    arcs: Any
    residual: NDArray[np.float64]
    excess: NDArray[np.float64]

    @classmethod
    def of(cls, n_nodes: int, n_arcs: int) -> Self:
        """Room for a graph."""
        nodes, arcs = np.recarray(n_nodes + 1, dtype=NODE), np.recarray(n_arcs, dtype=ARC)
        return cls(nodes, nodes.view(LEVEL), nodes.view(PART), arcs, np.empty(n_arcs), np.empty(n_nodes))


class SparseFlow(Flow):
    """For graphs of at most `DENSE` arcs a node."""


class DenseFlow(Flow):
    """For graphs of more than `DENSE` arcs a node."""


def flow_kind(n_nodes: NDArray[np.int64], n_arcs: NDArray[np.int64]) -> type[Flow]:
    """The type for graphs of these sizes."""
    dense = n_arcs > DENSE * n_nodes
    return DenseFlow if dense.all() else Flow if dense.any() else SparseFlow


# ------------------------------------------------------------------------------------------------------- kernels


@inner
def max_flow(graph: Any, n_nodes: int, tiny: float) -> float:
    """Largest flow from nodes of positive to nodes of negative excess; `tree` of what the source still reaches is SOURCE."""
    nodes, arcs, residual, excess = graph.nodes, graph.arcs, graph.residual, graph.excess
    flow = 0.0
    # Much of the flow takes one arc, and needs no search.
    for u in range(n_nodes):
        if excess[u] > tiny:
            for arc in range(nodes[u].first, nodes[u + 1].first):
                v = arcs[arc].head
                if excess[v] < -tiny and residual[arc] > tiny:
                    amount = min(min(excess[u], -excess[v]), residual[arc])
                    flow += amount
                    excess[u] -= amount
                    excess[v] += amount
                    residual[arc] -= amount
                    residual[arcs[arc].reverse] += amount
                    if excess[u] <= tiny:
                        break
    flow += _search(graph, n_nodes, tiny)
    return float(flow)


def _search_any(graph: Any, n_nodes: int, tiny: float) -> float:
    if graph.nodes[n_nodes].first > DENSE * n_nodes:
        return _flow_by_levels(graph, n_nodes, tiny)  # type: ignore[no-any-return]
    return _flow_by_trees(graph, n_nodes, tiny)  # type: ignore[no-any-return]


def _search_sparse(graph: Any, n_nodes: int, tiny: float) -> float:
    return _flow_by_trees(graph, n_nodes, tiny)  # type: ignore[no-any-return]


def _search_dense(graph: Any, n_nodes: int, tiny: float) -> float:
    return _flow_by_levels(graph, n_nodes, tiny)  # type: ignore[no-any-return]


def _search(graph: Any, n_nodes: int, tiny: float) -> float:
    """The rest of the flow, by the algorithm that is faster on the graph."""
    found: float = _SEARCHES[type(graph)](graph, n_nodes, tiny)
    return found


@inner_overload(_search)
def _compiled_search(graph: Any, n_nodes: int, tiny: float) -> Any:
    return _SEARCHES[graph.instance_class]


_SEARCHES: dict[Any, Any] = {Flow: _search_any, SparseFlow: _search_sparse, DenseFlow: _search_dense}


@inner
def _flow_by_levels(graph: Any, n_nodes: int, tiny: float) -> float:
    """Dinic's algorithm."""
    nodes, flow = graph.levels, 0.0
    while True:
        n_sources, target = _find_levels(graph, n_nodes, tiny)
        if target == n_nodes:
            for u in range(n_nodes):
                nodes[u].tree = SOURCE if nodes[u].level >= 0 else FREE
            return flow
        flow = _blocking_flow(graph, n_sources, target, tiny, flow)


@inner
def _find_levels(graph: Any, n_nodes: int, tiny: float) -> tuple[int, int]:
    """Distances from the source, up to those of the nearest nodes that lead to the sink: how many nodes have 0, and theirs.

    If none leads there, n_nodes stands for their distance.
    """
    nodes, arcs, residual, excess = graph.levels, graph.arcs, graph.residual, graph.excess
    n_sources = 0
    for u in range(n_nodes):
        node = nodes[u]
        node.level, node.cursor = -1, node.first
        if excess[u] > tiny:
            node.level = 0
            nodes[n_sources].queue = u
            n_sources += 1
    done, reached, target = 0, n_sources, n_nodes
    while done < reached:
        u = nodes[done].queue
        done += 1
        distance = nodes[u].level + 1
        if distance > target:
            break
        for arc in range(nodes[u].first, nodes[u + 1].first):
            v = arcs[arc].head
            node = nodes[v]
            if node.level < 0 and residual[arc] > tiny:
                node.level = distance
                nodes[reached].queue = v
                reached += 1
                if excess[v] < -tiny:
                    target = distance
    return n_sources, target


@inner
def _blocking_flow(graph: Any, n_sources: int, target: int, tiny: float, flow: float) -> float:
    """Send along paths that go up one level an arc, depth first; an arc found useless is not tried again."""
    nodes, arcs, residual, excess = graph.levels, graph.arcs, graph.residual, graph.excess
    for q in range(n_sources):
        source = nodes[q].queue
        u, depth = source, 0
        while True:
            if excess[u] < -tiny:
                amount = min(excess[source], -excess[u])
                for d in range(depth):
                    amount = min(amount, residual[nodes[d].path])
                flow += amount
                excess[source] -= amount
                excess[u] += amount
                keep = depth
                for d in range(depth - 1, -1, -1):
                    arc = nodes[d].path
                    residual[arc] -= amount
                    residual[arcs[arc].reverse] += amount
                    if residual[arc] <= tiny:
                        keep = d
                if excess[source] <= tiny:
                    break
                if keep < depth:
                    depth = keep
                    u = arcs[arcs[nodes[keep].path].reverse].head
                continue
            node = nodes[u]
            arc, end, above = node.cursor, nodes[u + 1].first, node.level + 1
            if above > target:
                arc = end
            while arc < end and not (nodes[arcs[arc].head].level == above and residual[arc] > tiny):
                arc += 1
            node.cursor = arc
            if arc < end:
                nodes[depth].path = arc
                depth += 1
                u = arcs[arc].head
            elif depth == 0:
                break
            else:
                # A dead end for all other paths of this phase, too.
                node.level = -1
                depth -= 1
                u = arcs[arcs[nodes[depth].path].reverse].head
                nodes[u].cursor += 1
    return flow


@inner
def _flow_by_trees(graph: Any, n_nodes: int, tiny: float) -> float:
    """Boykov and Kolmogorov's algorithm."""
    nodes, arcs, residual, excess = graph.nodes, graph.arcs, graph.residual, graph.excess
    queued, flow, now = 0, 0.0, 0
    for u in range(n_nodes):
        here = nodes[u]
        here.tree, here.queued = FREE, 0
        if abs(excess[u]) > tiny:
            here.tree = SOURCE if excess[u] > 0.0 else SINK
            here.parent, here.stamp, here.distance = TERMINAL, 0, 1
            nodes[queued].queue, here.queued = u, 1
            queued += 1
    at = 0
    end = queued if queued < n_nodes else 0
    while queued > 0:
        u = nodes[at].queue
        at = at + 1 if at + 1 < n_nodes else 0
        queued -= 1
        here = nodes[u]
        here.queued = 0
        tree = here.tree
        if tree == FREE:
            continue
        for arc in range(here.first, nodes[u + 1].first):
            v = arcs[arc].head
            there = nodes[v]
            # Most neighbours have nothing to say, and are told by their own record.
            if there.tree == tree and there.distance <= here.distance:
                continue
            back = arcs[arc].reverse
            forth = arc if tree == SOURCE else back
            # Trees may touch at this arc several times, each time by other ways to the terminals.
            while there.tree == SOURCE + SINK - tree and here.tree == tree and residual[forth] > tiny:
                now += 1
                amount, n_orphans = _augment(graph, forth, tiny)
                flow += amount
                added = _mend(graph, n_nodes, n_orphans, now, end, tiny)
                queued += added
                end = end + added if end + added < n_nodes else end + added - n_nodes
            if here.tree != tree:
                break
            if residual[forth] <= tiny:
                continue
            if there.tree == FREE:
                there.tree, there.parent = tree, back
                there.stamp, there.distance = here.stamp, here.distance + 1
                if there.queued == 0:
                    nodes[end].queue, there.queued = v, 1
                    end = end + 1 if end + 1 < n_nodes else 0
                    queued += 1
            elif there.stamp <= here.stamp:
                # Nearer to the terminal this way.
                there.parent = back
                there.stamp, there.distance = here.stamp, here.distance + 1
    return flow


@inner
def _augment(graph: Any, middle: int, tiny: float) -> tuple[float, int]:
    """Send what fits from the source's tree over the arc to the sink's; returns it, and how many nodes lost parents."""
    nodes, arcs, residual, excess = graph.nodes, graph.arcs, graph.residual, graph.excess
    amount = residual[middle]
    for side in (SOURCE, SINK):
        u = arcs[arcs[middle].reverse if side == SOURCE else middle].head
        up = nodes[u].parent
        while up != TERMINAL:
            amount = min(amount, residual[arcs[up].reverse if side == SOURCE else up])
            u = arcs[up].head
            up = nodes[u].parent
        amount = min(amount, abs(excess[u]))
    n_orphans = 0
    residual[middle] -= amount
    residual[arcs[middle].reverse] += amount
    for side in (SOURCE, SINK):
        u = arcs[arcs[middle].reverse if side == SOURCE else middle].head
        up = nodes[u].parent
        while up != TERMINAL:
            down = arcs[up].reverse
            used, back = (down, up) if side == SOURCE else (up, down)
            residual[used] -= amount
            residual[back] += amount
            if residual[used] <= tiny:
                nodes[u].parent = ORPHAN
                nodes[n_orphans].orphans = u
                n_orphans += 1
            u = arcs[up].head
            up = nodes[u].parent
        excess[u] -= amount if side == SOURCE else -amount
        if abs(excess[u]) <= tiny:
            nodes[u].parent = ORPHAN
            nodes[n_orphans].orphans = u
            n_orphans += 1
    return amount, n_orphans


@inner
def _mend(graph: Any, n_nodes: int, n_orphans: int, now: int, end: int, tiny: float) -> int:
    """Find other parents for the nodes that lost theirs, or free them; returns how many nodes came to the end of the queue."""
    nodes, arcs, residual = graph.nodes, graph.arcs, graph.residual
    done, added = 0, 0
    while done < n_orphans:
        orphan = nodes[done].orphans
        done += 1
        if _adopt(graph, orphan, now, tiny):
            continue
        side = nodes[orphan].tree
        nodes[orphan].tree = FREE
        for arc in range(nodes[orphan].first, nodes[orphan + 1].first):
            v, back = arcs[arc].head, arcs[arc].reverse
            node = nodes[v]
            if node.tree != side:
                continue
            if node.queued == 0 and residual[back if side == SOURCE else arc] > tiny:
                nodes[end].queue, node.queued = v, 1
                end = end + 1 if end + 1 < n_nodes else 0
                added += 1
            if node.parent == back:
                node.parent = ORPHAN
                nodes[n_orphans].orphans = v
                n_orphans += 1
    return added


@inner
def _adopt(graph: Any, u: int, now: int, tiny: float) -> bool:
    """Hang an orphan on the neighbour of its tree that is nearest to the terminal, if there is one."""
    nodes, arcs, residual = graph.nodes, graph.arcs, graph.residual
    tree, nearest, chosen = nodes[u].tree, FAR, ORPHAN
    for arc in range(nodes[u].first, nodes[u + 1].first):
        v = arcs[arc].head
        if nodes[v].tree != tree or residual[arcs[arc].reverse if tree == SOURCE else arc] <= tiny:
            continue
        # Follow the parents up to a node whose distance is known to be of this round, to the terminal, or to an orphan.
        node, length = nodes[v], 0
        while node.stamp != now:
            length += 1
            up = node.parent
            if up == TERMINAL:
                node.stamp, node.distance = now, 1
                length -= 1
            elif up == ORPHAN:
                length = FAR
                break
            else:
                node = nodes[arcs[up].head]
        if length == FAR:
            continue
        length += node.distance
        if length < nearest:
            nearest, chosen = length, arc
        node = nodes[v]
        while node.stamp != now:
            node.stamp, node.distance = now, length
            length -= 1
            node = nodes[arcs[node.parent].head]
    if chosen == ORPHAN:
        return False
    node = nodes[u]
    node.parent, node.stamp, node.distance = chosen, now, nearest + 1
    return True


@inner
def components(graph: Any, n_nodes: int, tiny: float) -> None:
    """Number the strongly connected components of nodes that are NOT_YET in one, each after all that it leads to."""
    nodes, arcs, residual = graph.parts, graph.arcs, graph.residual
    order, n_components, n_waiting = 0, 0, 0
    for u in range(n_nodes):
        nodes[u].order = 0
    for root in range(n_nodes):
        if nodes[root].component != NOT_YET:
            continue
        depth = 0
        nodes[0].calls = root
        while depth >= 0:
            u = nodes[depth].calls
            here = nodes[u]
            if here.order == 0:
                order += 1
                here.order, here.low, here.cursor = order, order, here.first
                nodes[n_waiting].waiting = u
                n_waiting += 1
            arc, end, entered = here.cursor, nodes[u + 1].first, False
            while arc < end:
                v = arcs[arc].head
                there = nodes[v]
                if there.component == NOT_YET and residual[arc] > tiny:
                    if there.order == 0:
                        # The arc is looked at again on the way back, when `low` of v is known.
                        depth += 1
                        nodes[depth].calls = v
                        entered = True
                        break
                    here.low = min(here.low, there.low)
                arc += 1
            here.cursor = arc
            if entered:
                continue
            if here.low == here.order:
                v = -1
                while v != u:
                    n_waiting -= 1
                    v = nodes[n_waiting].waiting
                    nodes[v].component = n_components
                n_components += 1
            depth -= 1

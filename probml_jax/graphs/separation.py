"""Reading independence off a graph: reachability, d-separation, blankets, cycles. Plain sets, on the host."""

from collections.abc import Iterable, Sequence

Parents = Sequence[Sequence[int]]


def children_of(parents: Parents) -> list[list[int]]:
    """The children of each node."""
    children: list[list[int]] = [[] for _ in parents]
    for node, above in enumerate(parents):
        for parent in above:
            children[parent].append(node)
    return children


def topological_order(parents: Parents) -> list[int] | None:
    """Nodes with every parent before its children, the given order where possible; `None` if there is a cycle."""
    waiting = [len(set(above)) for above in parents]
    children = children_of([tuple(dict.fromkeys(above)) for above in parents])
    ready = [node for node, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        node = ready.pop(0)
        order.append(node)
        for child in children[node]:
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    return order if len(order) == len(parents) else None


def find_cycle(parents: Parents) -> list[int]:
    """One directed cycle, from a node along arrows back to itself; empty if there is none."""
    done: set[int] = set()
    for start in range(len(parents)):
        path, seen, node = [start], {start: 0}, start
        while node not in done:
            above = [p for p in parents[node] if p not in done]
            if not above:
                done.add(node)
                path.pop()
                if not path:
                    break
                del seen[node]
                node = path[-1]
                continue
            node = above[0]
            if node in seen:
                return [*path[seen[node] :], node][::-1]
            seen[node] = len(path)
            path.append(node)
    return []


def ancestors(parents: Parents, nodes: Iterable[int]) -> set[int]:
    """The nodes and everything above them."""
    found, waiting = set(), list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(parents[node])
    return found


def descendants(parents: Parents, node: int) -> set[int]:
    """Everything strictly below a node."""
    return ancestors(children_of(parents), [node]) - {node}


def markov_blanket(parents: Parents, node: int) -> set[int]:
    """Parents, children and the children's other parents: given these a node is independent of everything else."""
    below = children_of(parents)[node]
    return {*parents[node], *below, *(p for child in below for p in parents[child])} - {node}


def d_connected(parents: Parents, sources: Iterable[int], given: set[int]) -> set[int]:
    """Nodes reachable from the sources along active trails.

    A ball that comes from a child passes up and down unless the node is observed; one that comes from a parent passes
    down unless it is observed, and then bounces back to the parents. (A collider with something observed below it needs
    no rule of its own: the ball comes back to it from its child.)
    Cost: linear in the number of arrows. Reference: Shachter (1998).
    """
    children = children_of(parents)
    from_child, from_parent = True, False
    waiting = [(node, from_child) for node in sources]
    visited, reached = set(), set()
    while waiting:
        node, direction = waiting.pop()
        if (node, direction) in visited:
            continue
        visited.add((node, direction))
        if node not in given:
            reached.add(node)
            waiting.extend((child, from_parent) for child in children[node])
            if direction is from_child:
                waiting.extend((parent, from_child) for parent in parents[node])
        elif direction is from_parent:
            waiting.extend((parent, from_child) for parent in parents[node])
    return reached


def connected(neighbors: Sequence[Iterable[int]], sources: Iterable[int], removed: set[int]) -> set[int]:
    """Nodes of an undirected graph reachable from the sources without entering the removed ones."""
    found, waiting = set(), [node for node in sources if node not in removed]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(other for other in neighbors[node] if other not in removed)
    return found


def neighbors_of(scopes: Iterable[Sequence[int]], num_variables: int) -> list[set[int]]:
    """Variables that share a table."""
    around: list[set[int]] = [set() for _ in range(num_variables)]
    for scope in scopes:
        for v in scope:
            around[v] |= set(scope) - {v}
    return around

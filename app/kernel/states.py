"""State machines as data: a tuple of edges, and nothing else decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edge:
    """One allowed move: who may make it, and when. A manual edge is taken by a person's command."""

    source: str
    target: str
    owner: str
    when: str
    manual: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """A state machine; states stand in the order in which a thing usually passes through them."""

    initial: str
    states: tuple[str, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        named = {self.initial, *(e.source for e in self.edges), *(e.target for e in self.edges)}
        if named != set(self.states):
            raise ValueError(f"states and edges disagree about {sorted(named ^ set(self.states))}")

    def allows(self, source: str, target: str, *, manual: bool = False) -> bool:
        """Whether this edge exists among the automatic ones, or among the manual ones."""
        return source in self.sources(target, manual=manual)

    def sources(self, target: str, *, manual: bool = False) -> tuple[str, ...]:
        """The states from which `target` may be reached: they go straight into the SQL guard."""
        return tuple(e.source for e in self.edges if e.target == target and e.manual == manual)

    @property
    def terminal(self) -> tuple[str, ...]:
        """The states that no automatic edge leaves."""
        left = {edge.source for edge in self.edges if not edge.manual}
        return tuple(state for state in self.states if state not in left)

"""Claims in hand: a heap by due instant between the claimer, which fills it, and the starter, which empties it."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterable

from timeball.store.claims import Claim


class HeldClaims:
    """Claims that have not started. A run claimed anew replaces its older claim. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heap: list[tuple[int, int]] = []
        self._claims: dict[int, Claim] = {}

    def __len__(self) -> int:
        """How many claims are in hand."""
        return len(self._claims)

    def add(self, claims: Iterable[Claim]) -> None:
        """Take claims in hand, to be tried at their due instants."""
        with self._lock:
            for claim in claims:
                self._claims[claim.run_id] = claim
                heapq.heappush(self._heap, (claim.ready_at, claim.run_id))

    def put_back(self, claim: Claim, try_at: int) -> None:
        """Keep a claim that could not start yet, to be tried again at an instant."""
        with self._lock:
            self._claims.setdefault(claim.run_id, claim)
            heapq.heappush(self._heap, (try_at, claim.run_id))

    def next_at(self) -> int | None:
        """The instant at which the next claim is to be tried."""
        with self._lock:
            self._tidy()
            return self._heap[0][0] if self._heap else None

    def count_until(self, instant: int) -> int:
        """Roughly how many claims are to be tried up to an instant."""
        with self._lock:
            return sum(1 for at, _ in self._heap if at <= instant)

    def pop_until(self, instant: int, limit: int) -> list[Claim]:
        """Claims to be tried up to an instant, the earliest first."""
        popped: list[Claim] = []
        with self._lock:
            self._tidy()
            while self._heap and self._heap[0][0] <= instant and len(popped) < limit:
                _, run_id = heapq.heappop(self._heap)
                claim = self._claims.pop(run_id, None)
                if claim is not None:
                    popped.append(claim)
                self._tidy()
        return popped

    def clear(self) -> list[Claim]:
        """Let go of everything; what was in hand."""
        with self._lock:
            claims = list(self._claims.values())
            self._claims.clear()
            self._heap.clear()
        return claims

    def _tidy(self) -> None:
        while self._heap and self._heap[0][1] not in self._claims:
            heapq.heappop(self._heap)

"""The verdict as a document for programs; knows no terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from timeball.clock import format_instant
from timeball.selftest.checker import Figures, story_of
from timeball.selftest.history import History, Violation

TOLD_PER_RULE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came out. `faults`: how many of each kind were applied."""

    seed: int
    history: History
    violations: Sequence[Violation]
    figures: Figures
    faults: Mapping[str, int]

    @property
    def passed(self) -> bool:
        """Not one violation."""
        return not self.violations

    @property
    def by_rule(self) -> dict[str, int]:
        """How many violations of each rule."""
        return dict(Counter(violation.rule for violation in self.violations))

    @property
    def told(self) -> list[Violation]:
        """The violations whose history is told: the first ones of each rule."""
        seen = Counter[str]()
        told: list[Violation] = []
        for violation in self.violations:
            seen[violation.rule] += 1
            if seen[violation.rule] <= TOLD_PER_RULE:
                told.append(violation)
        return told

    def figures_json(self) -> dict[str, object]:
        """The figures, durations in milliseconds."""
        f = self.figures
        return {
            "ticks": f.ticks,
            "runs": f.runs,
            "begins": f.begins,
            "later_attempts": f.later_attempts,
            "duplicates": f.duplicates,
            "missed": f.missed,
            "skipped": f.skipped,
            "lost": f.lost,
            "late": {"p50_ms": _ms(f.late_p50_us), "p99_ms": _ms(f.late_p99_us), "max_ms": _ms(f.late_max_us)},
            "worst_gap_ms": _ms(f.worst_gap_us),
            "worst_gap_job": f.worst_gap_job,
            "lease_hands": f.lease_hands,
            "changes": f.changes,
            "triggers": f.triggers,
        }

    def to_json(self) -> dict[str, object]:
        """One document; the history of each violation goes along."""
        return {
            "verdict": "passed" if self.passed else "failed",
            "seed": self.seed,
            **self.figures_json(),
            "faults": dict(self.faults),
            "violations_by_rule": self.by_rule,
            "violations": [
                {
                    "rule": v.rule,
                    "job": v.job or None,
                    "due_at": format_instant(v.due_at),
                    "run": v.run_id,
                    "detail": v.detail,
                    "history": story_of(self.history, v),
                }
                for v in self.told
            ],
            "more_violations": len(self.violations) - len(self.told),
        }


def _ms(duration_us: int | None) -> float | None:
    return None if duration_us is None else duration_us / 1000

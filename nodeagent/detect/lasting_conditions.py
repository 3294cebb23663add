"""Conditions that last: reported once when they begin and once when they end."""

from collections.abc import Collection, Iterable

from nodeagent.protocol.findings import FindingSign, NodeFinding

ConditionKey = tuple[FindingSign, str]


class LastingConditions:
    """Takes the conditions of each reading and returns the changes.

    Args:
        num_to_begin: Readings in a row that must show a condition before it is reported.
        num_to_end: Readings in a row without it before its end is reported.
    """

    def __init__(self, num_to_begin: int = 1, num_to_end: int = 1) -> None:
        self._num_to_begin = num_to_begin
        self._num_to_end = num_to_end
        self._seen: dict[ConditionKey, int] = {}
        self._reported: dict[ConditionKey, NodeFinding] = {}
        self._num_missed: dict[ConditionKey, int] = {}

    def holds(self, sign: FindingSign, subject: str) -> bool:
        """Return whether the condition was reported and is not over."""
        return (sign, subject) in self._reported

    def update(
        self, found: Iterable[NodeFinding], unread: Collection[str] = ()
    ) -> list[NodeFinding]:
        """Return the conditions that begin with this look, then those that are over.

        Args:
            found: What holds at this look.
            unread: Subjects that could not be looked at. What was found there is not over.
        """
        by_key: dict[ConditionKey, NodeFinding] = {(one.sign, one.subject): one for one in found}
        self._seen = {key: self._seen.get(key, 0) + 1 for key in by_key}
        begun = [
            finding
            for key, finding in by_key.items()
            if key not in self._reported and self._seen[key] >= self._num_to_begin
        ]
        for key in self._reported:
            if key in by_key:
                self._num_missed[key] = 0
            elif key[1] not in unread:
                self._num_missed[key] = self._num_missed.get(key, 0) + 1
        over = [key for key, missed in self._num_missed.items() if missed >= self._num_to_end]
        ended = [self._end(key) for key in over]
        self._reported |= {(finding.sign, finding.subject): finding for finding in begun}
        return begun + ended

    def _end(self, key: ConditionKey) -> NodeFinding:
        del self._num_missed[key]
        finding = self._reported.pop(key)
        return finding.model_copy(update={"is_over": True, "text": f"over: {finding.text}"})

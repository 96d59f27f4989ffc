"""What a dialect says of a pod that it cannot read."""

from collections.abc import Iterable


class DialectError(ValueError):
    """A pod whose GPU request makes no sense; `problems` has one sentence each: container, field, value and the fix."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class Problems:
    """Collects sentences about one pod, so that its author hears of all of them at once."""

    def __init__(self) -> None:
        self._sentences: list[str] = []

    def add(self, sentence: str) -> None:
        """Notes one problem."""
        self._sentences.append(sentence)

    def extend(self, others: "Problems") -> None:
        """Notes everything that was noted elsewhere."""
        self._sentences.extend(others._sentences)

    def __bool__(self) -> bool:
        return bool(self._sentences)

    def raise_if_any(self) -> None:
        """Raises `DialectError` with everything noted; each sentence once."""
        if self._sentences:
            raise DialectError(dict.fromkeys(self._sentences))

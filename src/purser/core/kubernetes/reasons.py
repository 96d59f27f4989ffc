"""Reasons, as events and conditions have them: one word that people search for and tools compare, explained beside it.

Each room has its reasons in enums of this base. Events, conditions and metrics use the members, and docs/reasons.md is
made of all of them.
"""

from enum import StrEnum
from typing import Self


class ExplainedReason(StrEnum):
    """Base of enums of reasons: a member is its word, on what it is found, what happened, and what to do."""

    about: str
    """The kind of object that carries it, or whose treatment it explains."""
    happened: str
    """In one sentence."""
    remedy: str
    """What to do, in one sentence; empty: nothing."""

    def __new__(cls, word: str, about: str, happened: str, remedy: str = "") -> Self:
        """A member; as a value it is the word alone."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.about, member.happened, member.remedy = about, happened, remedy
        return member

"""What a plugin answers where one call asks for two containers."""

from typing import Any

from purser.core.wording import counted
from purser.lab.conformance.check import CheckFailed
from purser.lab.conformance.subject import Subject
from purser.lab.conformance.wire import CallRefused


async def check_two_responses(subject: Subject, call: str, request: Any) -> str | None:
    """Ask for two containers at once. Returns how a plugin refuses that; raises `CheckFailed` for another number of
    responses."""
    try:
        answer = await subject.plugin.ask(call, request)
    except CallRefused as error:
        return f"refused, which is harmless because kubelet asks for one container at a time: {error}"
    if len(answer.container_responses) != 2:
        responses = counted(len(answer.container_responses), "response")
        raise CheckFailed(f"one call for two containers returned {responses}")
    return None

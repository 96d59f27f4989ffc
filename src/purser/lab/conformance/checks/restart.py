"""kubelet restarts: its socket goes, every other socket in the folder too, and its own comes back."""

import asyncio
import contextlib
import time

from purser.agent.host.sockets import is_listening
from purser.lab.conformance.check import Check, CheckFailed
from purser.lab.conformance.subject import Subject

KUBELET_DOWNTIME_S = 0.2
"""How long kubelet is away; real ones take a second or more."""

RESTART_ROUNDS = 3


async def _check_restart(subject: Subject) -> str:
    return await _restart(subject)


async def _check_repeated_restarts(subject: Subject) -> str:
    took = [await _restart(subject) for _ in range(RESTART_ROUNDS)]
    return "; ".join(took)


async def _check_quick_restarts(subject: Subject) -> str:
    """The plugin may still be busy with the first when the second comes."""
    kubelet = subject.kubelet
    await kubelet.stop()
    kubelet.empty_folder()
    await kubelet.start()
    return await _restart(subject, at_once=True)


async def _check_refusal(subject: Subject) -> str:
    subject.kubelet.refusals = 1
    try:
        return await _restart(subject)
    finally:
        subject.kubelet.refusals = 0


async def _check_socket_replaced(subject: Subject) -> str:
    """A plugin that served again between the emptying and kubelet's new socket sees just this."""
    try:
        return await _restart(subject, empty=False)
    except CheckFailed:
        await _restore_plugin(subject)
        raise


async def _check_own_socket(subject: Subject) -> str:
    kubelet, started = subject.kubelet, time.monotonic()
    after = len(kubelet.registrations)
    subject.endpoint.path.unlink()
    try:
        await subject.registered(after)
    except CheckFailed as error:
        await _restore_plugin(subject)
        raise CheckFailed(f"the plugin did not notice that its socket was deleted: {error}") from error
    await _check_serves(subject)
    return f"registered again after {time.monotonic() - started:.1f} s"


async def _restart(subject: Subject, *, empty: bool = True, at_once: bool = False) -> str:
    kubelet = subject.kubelet
    await kubelet.stop()
    if empty:
        kubelet.empty_folder()
    await asyncio.sleep(0 if at_once else KUBELET_DOWNTIME_S)
    started = time.monotonic()
    await kubelet.start()
    try:
        found = await subject.registered(kubelet.before_start)
        try:
            await _check_serves(subject)
        except CheckFailed:
            if not at_once:
                raise
            # Its call was meant for the kubelet before this one: it starts over as soon as it sees that.
            await subject.registered(kubelet.registrations.index(found) + 1)
            await _check_serves(subject)
    except CheckFailed as error:
        raise CheckFailed(f"after kubelet restarted: {error}") from error
    return f"registered again after {time.monotonic() - started:.1f} s"


async def _check_serves(subject: Subject) -> None:
    await subject.endpoint.stream.first()
    if not is_listening(subject.endpoint.path):
        raise CheckFailed(f"no process is listening on {subject.endpoint.path.name} in kubelet's folder")


async def _restore_plugin(subject: Subject) -> None:
    """Have the plugin where the checks to come can reach it."""
    with contextlib.suppress(CheckFailed):
        await _restart(subject)


_NEEDS = ("register", "reregister")

CHECKS = (
    Check("reregister", "The plugin registers again when kubelet restarts.", _check_restart, ("register",)),
    Check(
        "reregister-repeated",
        f"The plugin registers again each time kubelet restarts {RESTART_ROUNDS} times in a row.",
        _check_repeated_restarts,
        _NEEDS,
    ),
    Check(
        "reregister-twice-at-once",
        "The plugin registers again when kubelet restarts twice in quick succession.",
        _check_quick_restarts,
        _NEEDS,
    ),
    Check("reregister-refused", "The plugin retries when kubelet refuses its registration.", _check_refusal, _NEEDS),
    Check(
        "reregister-socket-kept",
        "The plugin registers again when only kubelet's socket is replaced.",
        _check_socket_replaced,
        _NEEDS,
    ),
    Check(
        "reregister-own-socket",
        "The plugin serves and registers again after its own socket was deleted.",
        _check_own_socket,
        _NEEDS,
    ),
)

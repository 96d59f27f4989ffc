"""GetPreferredAllocation: the plugin's wish among the devices that kubelet could take."""

from collections import Counter
from collections.abc import Sequence

from purser.core.wording import counted
from purser.lab.conformance.check import Check, CheckFailed, CheckSkipped, some
from purser.lab.conformance.several import check_two_responses
from purser.lab.conformance.subject import Subject
from purser.lab.conformance.wire import CallRefused, preferred_request

REPEATS = 5
_CANDIDATES = 8
_FOREIGN = "purser-conformance-no-such-device"


async def _check_answers(subject: Subject) -> str:
    if not (await subject.plugin.options()).get_preferred_allocation_available:
        raise CheckSkipped("the plugin does not offer GetPreferredAllocation")
    available, size, preferred = await _ask(subject)
    return f"{len(preferred)} of {counted(len(available), 'device')} for a container that requests {size}"


async def _check_size(subject: Subject) -> None:
    available, size, preferred = await _ask(subject)
    if len(preferred) != size:
        raise CheckFailed(
            f"the plugin returned {counted(len(preferred), 'ID')}, but was asked for {size} of "
            f"{counted(len(available), 'available device')}"
        )


async def _check_available(subject: Subject) -> None:
    ids = await subject.healthy(2)
    half = ids[len(ids) // 2 :]
    try:
        preferred = await subject.plugin.prefer(half, subject.size(half))
    except CallRefused:
        half, _, preferred = await _ask(subject)
    foreign = set(preferred) - set(half)
    if foreign:
        raise CheckFailed(f"the plugin prefers IDs that are not available: {some(foreign)}")


async def _check_no_duplicates(subject: Subject) -> None:
    _, _, preferred = await _ask(subject)
    repeated = [device_id for device_id, times in Counter(preferred).items() if times > 1]
    if repeated:
        raise CheckFailed(f"the plugin returned IDs more than once: {some(repeated)}")


async def _check_must_include(subject: Subject) -> str | None:
    """With an id that the plugin would not have taken by itself: else ignoring it would not show."""
    available, size, preferred = await _ask(subject)
    others = [device_id for device_id in available if device_id not in preferred]
    if not others:
        raise CheckSkipped(f"needs more than {counted(size, 'healthy device')}, so that a different answer is possible")
    refused = ""
    for must in others[:_CANDIDATES]:
        try:
            answer = await subject.plugin.prefer(available, size, (must,))
        except CallRefused as error:
            refused = str(error)
            continue
        if must not in answer:
            raise CheckFailed(f"the answer must include {must}, but is {_ids(answer)}")
        return None
    raise CheckSkipped(f"the plugin refused every ID that it was asked to include: {refused}")


async def _check_deterministic(subject: Subject) -> str:
    available, size, first = await _ask(subject)
    for _ in range(REPEATS - 1):
        again = await subject.plugin.prefer(available, size)
        if set(again) != set(first):
            raise CheckFailed(f"the same request got different answers: {_ids(first)}, then {_ids(again)}")
    return f"asked {REPEATS} times"


async def _check_two_containers(subject: Subject) -> str | None:
    available = await subject.healthy()
    size = subject.size(available)
    request = preferred_request((available, size, ()), (available, size, ()))
    return await check_two_responses(subject, "GetPreferredAllocation", request)


async def _check_unsatisfiable(subject: Subject) -> str:
    """Each is refused, or answered out of what was given: kubelet takes nothing else from an answer."""
    ids = await subject.healthy()
    one = ids[:1]
    cases = {
        "more devices than exist": (ids, len(ids) + 1, ()),
        "size 0": (ids, 0, ()),
        "a negative size": (ids, -1, ()),
        "nothing available": ((), 1, ()),
        "more IDs to include than requested": (ids, 1, ids[:2]),
        "an ID to include that is not available": (one, 1, (_FOREIGN,)),
        "unknown IDs": ((_FOREIGN, f"{_FOREIGN}-2"), 1, ()),
        "an ID given twice": ((*one, *one), 2, ()),
    }
    refused = 0
    for name, (available, size, must) in cases.items():
        try:
            answer = await subject.plugin.prefer(available, size, must)
        except CallRefused:
            refused += 1
            continue
        except CheckFailed as error:
            raise CheckFailed(f"{name}: {error}") from error
        foreign = set(answer) - set(available) - set(must)
        if foreign:
            raise CheckFailed(f"{name}: the answer contains IDs that the request does not: {some(foreign)}")
    await subject.plugin.options()
    return f"{refused} of {len(cases)} requests refused, {len(cases) - refused} answered with IDs from the request"


def _ids(answer: Sequence[str]) -> str:
    return ", ".join(answer) or "no ID"


async def _ask(subject: Subject) -> tuple[tuple[str, ...], int, tuple[str, ...]]:
    available = await subject.healthy()
    size = subject.size(available)
    return available, size, await subject.plugin.prefer(available, size)


_NEEDS = ("preferred",)

CHECKS = (
    Check("preferred", "The plugin answers GetPreferredAllocation, if it offers that call.", _check_answers, ("list",)),
    Check("preferred-size", "The plugin prefers as many IDs as requested.", _check_size, _NEEDS),
    Check("preferred-available", "The plugin prefers only available IDs.", _check_available, _NEEDS),
    Check("preferred-no-duplicates", "The plugin does not prefer any ID twice.", _check_no_duplicates, _NEEDS),
    Check("preferred-must-include", "The answer includes all required IDs.", _check_must_include, _NEEDS),
    Check(
        "preferred-deterministic",
        "GetPreferredAllocation gives the same answer to the same request.",
        _check_deterministic,
        _NEEDS,
    ),
    Check(
        "preferred-several",
        "One GetPreferredAllocation call for two containers returns two responses.",
        _check_two_containers,
        _NEEDS,
    ),
    Check("preferred-absurd", "The plugin survives requests that it cannot satisfy.", _check_unsatisfiable, _NEEDS),
)

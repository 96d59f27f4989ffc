"""How a plugin introduces itself to kubelet."""

import asyncio
import time

from purser.core.kubelet.devicemanager.registration import API_VERSION
from purser.core.kubernetes.naming import is_subdomain, is_unprefixed_name
from purser.lab.conformance.check import Check, CheckFailed, CheckSkipped
from purser.lab.conformance.kubelet import RegisterCall
from purser.lab.conformance.subject import Subject
from purser.lab.kubelet.serving import SOCKET_NAME


def reason_without_resource(name: str) -> str | None:
    """Why kubelet would not take this name for a device plugin's resource; None when it would."""
    if "/" not in name:
        return "it has no domain: must have the form vendor.example/thing"
    if "kubernetes.io/" in name or name.startswith("requests."):
        return "kubernetes.io/ and requests. are reserved for Kubernetes"
    prefix, _, rest = f"requests.{name}".partition("/")
    if not is_subdomain(prefix):
        return "the part before the slash must be a lowercase DNS name"
    if not is_unprefixed_name(rest):
        return (
            "the part after the slash must be 1 to 63 letters, digits, - _ . and begin and end with a letter or digit"
        )
    return None


async def _check_registers(subject: Subject) -> str:
    note = await subject.registered(0)
    others = f"; not tested: {', '.join(subject.others)}" if subject.others else ""
    return f"{note.request.resource_name} at {note.request.endpoint}{others}"


async def _check_version(subject: Subject) -> None:
    version = _first(subject).request.version
    if version != API_VERSION:
        raise CheckFailed(f'kubelet refuses the version "{version}": it supports only {API_VERSION}')


async def _check_resource_name(subject: Subject) -> None:
    name = _first(subject).request.resource_name
    why = reason_without_resource(name)
    if why is not None:
        raise CheckFailed(f'kubelet refuses the resource name "{name}": {why}')


async def _check_endpoint(subject: Subject) -> None:
    endpoint, folder = _first(subject).request.endpoint, subject.kubelet.folder
    if not endpoint or "/" in endpoint or endpoint in (".", "..", SOCKET_NAME):
        raise CheckFailed(
            f'invalid endpoint "{endpoint}": must be the name of a socket in kubelet\'s folder, without a path'
        )
    if not (folder / endpoint).is_socket():
        raise CheckFailed(f'the socket "{endpoint}" does not exist in kubelet\'s folder')


async def _check_serves_first(subject: Subject) -> None:
    if not _first(subject).served_while_pending:
        raise CheckFailed(
            "the endpoint did not accept a connection before Register returned: kubelet 1.25 and later connects first"
        )


async def _check_options_while_pending(subject: Subject) -> None:
    note = _first(subject)
    if note.options is None:
        why = note.problem or "no answer"
        raise CheckFailed(
            f"GetDevicePluginOptions failed while Register was pending, and kubelet 1.25 and later waits for it: {why}"
        )


async def _check_options_equal(subject: Subject) -> None:
    registered, asked = _first(subject).request.options, await subject.plugin.options()
    for name in ("pre_start_required", "get_preferred_allocation_available"):
        if getattr(registered, name) != getattr(asked, name):
            raise CheckFailed(
                f"{name} is {getattr(registered, name)} in Register but {getattr(asked, name)} in "
                "GetDevicePluginOptions: kubelet before 1.25 uses the former, later versions the latter"
            )


async def _check_registers_once(subject: Subject) -> str:
    note = _first(subject)
    await asyncio.sleep(max(0.0, subject.settings.observe_s - (time.monotonic() - note.at)))
    kubelet = subject.kubelet
    count = sum(
        each.request.resource_name == kubelet.resource for each in kubelet.registrations[kubelet.before_start :]
    )
    watched_s = time.monotonic() - note.at
    if count > 1:
        raise CheckFailed(f"{count} registrations in {watched_s:.1f} s: each one makes kubelet drop the previous one")
    return f"watched for {watched_s:.1f} s"


def _first(subject: Subject) -> RegisterCall:
    """The registration that the present connection comes from."""
    kubelet = subject.kubelet
    mine = (note for note in kubelet.registrations if note.request.resource_name == kubelet.resource)
    note = next(mine, None)
    if note is None:
        raise CheckSkipped("the plugin has not registered")
    return note


CHECKS = (
    Check("register", "The plugin registers with kubelet.", _check_registers, registered=False),
    Check("register-version", "The plugin registers with the API version v1beta1.", _check_version, ("register",)),
    Check(
        "register-resource-name",
        "The plugin's resource name is a valid extended resource name.",
        _check_resource_name,
        ("register",),
    ),
    Check(
        "register-endpoint",
        "The registered endpoint is the name of the plugin's socket in kubelet's folder.",
        _check_endpoint,
        ("register",),
    ),
    Check("register-serves-first", "The plugin serves before it registers.", _check_serves_first, ("register",)),
    Check(
        "register-options-while-pending",
        "The plugin answers GetDevicePluginOptions while its Register call is pending.",
        _check_options_while_pending,
        ("register-serves-first",),
    ),
    Check(
        "register-options-equal",
        "Register and GetDevicePluginOptions report the same options.",
        _check_options_equal,
        ("register",),
    ),
    Check("register-once", "The plugin registers once, not repeatedly.", _check_registers_once, ("register",)),
)

"""What a node is: whether it has GPUs, and its operating system and container runtime. Read per node, never guessed
from another one."""

import re
from typing import Literal

import msgspec

from purser.core.names import NODE_FACTS_ANNOTATION
from purser.core.node_facts import NodeFacts, decode_facts
from purser.operator.kernel.times import parsed
from purser.operator.model import NodeView, RuntimeKind
from purser.operator.names import (
    DEPLOY_OPERANDS_LABEL,
    DEPLOY_PREFIX,
    GPU_MISSING_SINCE_ANNOTATION,
    GPU_PRESENT_LABEL,
    GPU_PRODUCT_LABEL,
    MIG_CAPABLE_LABEL,
    NFD_GPU_LABELS,
    NFD_OS_ID_LABEL,
    NFD_OS_VERSION_LABEL,
    NFD_PREFIX,
)
from purser.operator.order import Operand


class Presence(msgspec.Struct, frozen=True):
    """Whether a node has GPUs, as far as one can see."""

    state: Literal["never", "present", "missing", "gone"]
    """Never: it had none; missing: nobody sees them any more, which may pass; gone: for so long that it has none."""
    gone_at: float | None = None
    """When a missing GPU will count as gone, if nothing changes."""


def has_gpu(node: NodeView, now: float, gone_after: float) -> Presence:
    """Whether a node has GPUs. Discovery may be away for a while: what was there stays until it was missing for
    ``gone_after`` seconds, unless Purser's own discovery looked and found none."""
    facts = facts_of(node)
    if _nfd_sees_gpu(node) or (facts is not None and facts.gpus):
        return Presence("present")
    if node.labels.get(GPU_PRESENT_LABEL) != "true":
        return Presence("gone" if node.labels.get(GPU_PRESENT_LABEL) == "false" else "never")
    if facts is not None and not any(label.startswith(NFD_PREFIX) for label in node.labels):
        return Presence("gone")
    since = parsed(node.annotations.get(GPU_MISSING_SINCE_ANNOTATION))
    gone_at = (now if since is None else since) + gone_after
    return Presence("gone") if gone_at <= now else Presence("missing", gone_at)


def has_stale_facts(node: NodeView) -> bool:
    """Whether Purser's discovery saw no GPU, once, and node-feature-discovery sees one now: discovery no longer runs
    there. Its word must not count on the day on which node-feature-discovery is away."""
    facts = facts_of(node)
    return facts is not None and not facts.gpus and _nfd_sees_gpu(node)


def _nfd_sees_gpu(node: NodeView) -> bool:
    return any(node.labels.get(label) == "true" for label in NFD_GPU_LABELS)


def facts_of(node: NodeView) -> NodeFacts | None:
    """What Purser's discovery said of a node."""
    return decode_facts(node.annotations.get(NODE_FACTS_ANNOTATION))


MAJOR_ONLY = frozenset({"ol", "rocky", "rhel"})
"""Operating systems whose driver images are made per major version."""

_KNOWN_IMAGES = (
    ("ubuntu", r"Ubuntu (?:Core )?(\d+\.\d+)"),
    ("rhel", r"Red Hat Enterprise Linux(?: \w+)* (\d+(?:\.\d+)?)"),
    ("rocky", r"Rocky Linux (\d+(?:\.\d+)?)"),
    ("ol", r"Oracle Linux Server (\d+(?:\.\d+)?)"),
    ("centos", r"CentOS (?:Linux|Stream) (\d+)"),
    ("almalinux", r"AlmaLinux (\d+(?:\.\d+)?)"),
    ("debian", r"Debian GNU/Linux (\d+)"),
    ("amzn", r"Amazon Linux (\d+)"),
    ("sles", r"SUSE Linux Enterprise Server (\d+(?: SP\d+)?)"),
    ("fedora", r"Fedora Linux (\d+)"),
    ("flatcar", r"Flatcar Container Linux by Kinvolk (\d+(?:\.\d+)*)"),
)
"""PRETTY_NAME, which kubelet reports, by ID of /etc/os-release."""


def os_of(node: NodeView) -> tuple[str, str] | None:
    """ID and version of a node's operating system: of node-feature-discovery, of Purser's, or as kubelet reports it.
    None: unknown."""
    facts = facts_of(node)
    told = [(node.labels.get(NFD_OS_ID_LABEL, ""), node.labels.get(NFD_OS_VERSION_LABEL, ""))]
    told += [(facts.os_id, facts.os_version)] if facts is not None else []
    told += _from_image(node.os_image)
    for os_id, version in told:
        if os_id and version:
            return os_id, version.partition(".")[0] if os_id in MAJOR_ONLY else version
    return None


def _from_image(image: str) -> list[tuple[str, str]]:
    for os_id, pattern in _KNOWN_IMAGES:
        if found := re.match(pattern, image):
            return [(os_id, found[1].replace(" SP", "."))]
    return []


_CDI_SINCE: dict[str, tuple[int, int]] = {"containerd": (1, 7), "crio": (1, 23)}


def runtime_of(node: NodeView) -> RuntimeKind:
    """A node's container runtime, and the distribution that has its files elsewhere."""
    name, _, version = node.runtime.partition("://")
    runtime: Literal["containerd", "crio", "docker"] = "containerd"
    if name == "cri-o":
        runtime = "crio"
    elif name == "docker":
        runtime = "docker"
    return RuntimeKind(runtime, _distribution(node), _can_cdi(runtime, version))


def _can_cdi(runtime: str, version: str) -> bool:
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return found is None or (int(found[1]), int(found[2])) >= _CDI_SINCE.get(runtime, (0, 0))


def _distribution(node: NodeView) -> Literal["", "k3s", "rke2", "k0s", "microk8s"]:
    version = node.kubelet_version
    facts = facts_of(node)
    told = facts.distribution if facts is not None else ""
    if "+k3s" in version or told == "k3s":
        return "k3s"
    if "+rke2" in version or told == "rke2":
        return "rke2"
    if "+k0s" in version or told == "k0s":
        return "k0s"
    if "microk8s.io/cluster" in node.labels or told == "microk8s":
        return "microk8s"
    return ""


_MIG_PRODUCTS = re.compile(r"(?:^|-)(?:A30|A100|G?H100|G?H200|G?B200|G?B300|RTX-PRO-6000)(?:-|$)", re.IGNORECASE)


def is_mig_capable(node: NodeView) -> bool:
    """Whether its GPUs can MIG: as feature discovery says, or by the product's name. Where neither is told now, a node
    that has the MIG manager keeps it: labels of discovery may be away for a while."""
    if told := node.labels.get(MIG_CAPABLE_LABEL):
        return told == "true"
    if product := node.labels.get(GPU_PRODUCT_LABEL):
        return bool(_MIG_PRODUCTS.search(product))
    has_manager = node.labels.get(Operand.MIG_MANAGER.deploy_label)
    return bool(has_manager) and not users_word(node, Operand.MIG_MANAGER)


def is_excluded(node: NodeView) -> bool:
    """Whether people want no operand on it."""
    return node.labels.get(DEPLOY_OPERANDS_LABEL) == "false"


def users_word(node: NodeView, operand: Operand) -> str:
    """What people wrote into an operand's label; empty: nothing, so that the operator has it."""
    value = node.labels.get(DEPLOY_PREFIX + operand, "")
    return "" if value == "true" or value.startswith("paused-for-") else value


def was_rebooted(node: NodeView, opened: str) -> bool:
    """Whether it runs another boot than the one that operands were let in for."""
    return bool(opened and node.boot_id) and opened != node.boot_id

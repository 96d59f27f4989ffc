"""What a node is: whether it has GPUs and which, and its operating system and container runtime. Read per node, never
guessed from another one."""

import re
from collections.abc import Iterator
from typing import get_args

from purser.core.device.pci import can_mig, product_of_device, supports_mig
from purser.core.kubernetes.times import parsed
from purser.core.names import DEPLOY_PREFIX, GPU_PRESENT_LABEL, NODE_FACTS_ANNOTATION
from purser.core.node.facts import NodeFacts, decode_facts
from purser.operator.maintenance import gpu_pods
from purser.operator.model import Distribution, NodeView, NodeWorkload, Presence, Runtime, RuntimeKind, Snapshot
from purser.operator.names import (
    DEPLOY_OPERANDS_LABEL,
    GPU_MISSING_SINCE_ANNOTATION,
    GPU_PRODUCT_LABEL,
    MIG_CAPABLE_LABEL,
    NFD_KERNEL_LABEL,
    NFD_OS_ID_LABEL,
    NFD_OS_VERSION_LABEL,
    NFD_PREFIX,
    WORKLOAD_LABEL,
)
from purser.operator.order import Operand
from purser.operator.policy.decoding import ChosenPolicies
from purser.operator.policy.fields import Workload
from purser.operator.policy.spec import ClusterPolicySpec


def has_gpu(node: NodeView, now: float, gone_after: float) -> Presence:
    """Whether a node has GPUs. Discovery may be away for a while: what was there stays until it was missing for
    ``gone_after`` seconds, unless Purser's own discovery looked and found none.

    Where node-feature-discovery is at work and sees no GPU, Purser's discovery does not run: what it saw is old.
    """
    facts = facts_of(node)
    seen = facts is not None and bool(facts.gpus) and not has_nfd(node)
    if seen or _nfd_sees_gpu(node):
        return Presence("present")
    if node.labels.get(GPU_PRESENT_LABEL) != "true":
        return Presence("gone" if node.labels.get(GPU_PRESENT_LABEL) == "false" else "never")
    if facts is not None and not has_nfd(node):
        return Presence("gone")
    since = parsed(node.annotations.get(GPU_MISSING_SINCE_ANNOTATION))
    gone_at = (now if since is None else since) + gone_after
    return Presence("gone") if gone_at <= now else Presence("missing", gone_at)


def has_nfd(node: NodeView) -> bool:
    """Whether node-feature-discovery is at work on a node. Purser's own discovery runs where it is not."""
    return NFD_KERNEL_LABEL in node.labels


def contradicts_nfd(node: NodeView) -> bool:
    """Whether Purser's discovery once saw something else than node-feature-discovery sees now. Its word must not count
    on the day on which node-feature-discovery is away."""
    facts, nfd_sees_gpu = facts_of(node), _nfd_sees_gpu(node)
    return facts is not None and (nfd_sees_gpu or has_nfd(node)) and bool(facts.gpus) is not nfd_sees_gpu


def _nfd_sees_gpu(node: NodeView) -> bool:
    return any(value == "true" and is_nfd_gpu_label(label) for label, value in node.labels.items())


_PCI = re.compile(re.escape(NFD_PREFIX) + r"pci-(.+)\.present")
_NVIDIA = "10de"
_GPU_CLASSES = frozenset({"0300", "0302"})
"""PCI classes of NVIDIA's GPUs; its NVSwitches are of another one."""


def is_nfd_gpu_label(label: str) -> bool:
    """Whether node-feature-discovery names one of NVIDIA's GPUs by it, whichever fields its labels are made of: the
    vendor comes first, or after a class that is a GPU's."""
    found = _PCI.fullmatch(label)
    fields = found[1].split("_") if found else []
    before = ("", *fields)
    return any(
        field == _NVIDIA and (not preceding or preceding in _GPU_CLASSES)
        for preceding, field in zip(before, fields, strict=False)
    )


def facts_of(node: NodeView) -> NodeFacts | None:
    """What Purser's discovery said of a node."""
    return decode_facts(node.annotations.get(NODE_FACTS_ANNOTATION))


MAJOR_ONLY = frozenset({"ol", "rocky", "rhel"})
"""Operating systems whose driver images are made per major version."""

_OS_IMAGE_PATTERNS = (
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
    known = [(node.labels.get(NFD_OS_ID_LABEL, ""), node.labels.get(NFD_OS_VERSION_LABEL, ""))]
    known += [(facts.os_id, facts.os_version)] if facts is not None else []
    known += _parse_os_image(node.os_image)
    for os_id, version in known:
        if os_id and version:
            return os_id, version.partition(".")[0] if os_id in MAJOR_ONLY else version
    return None


def _parse_os_image(image: str) -> list[tuple[str, str]]:
    for os_id, pattern in _OS_IMAGE_PATTERNS:
        if found := re.match(pattern, image):
            return [(os_id, found[1].replace(" SP", "."))]
    return []


_FIRST_CDI_VERSION: dict[str, tuple[int, int]] = {"containerd": (1, 7), "crio": (1, 23)}
_BY_CONFIG_VERSION = frozenset({"k3s", "rke2"})
"""Distributions that read containerd's drop-ins from another folder for version 2 of its configuration."""


def runtime_of(node: NodeView) -> RuntimeKind:
    """A node's container runtime, and the distribution that has its files elsewhere."""
    name, _, version = node.runtime.partition("://")
    runtime: Runtime = "containerd"
    if name == "cri-o":
        runtime = "crio"
    elif name == "docker":
        runtime = "docker"
    distribution = _distribution(node)
    old = runtime == "containerd" and distribution in _BY_CONFIG_VERSION and not _is_at_least(version, (2, 0))
    return RuntimeKind(runtime, distribution, _is_at_least(version, _FIRST_CDI_VERSION.get(runtime, (0, 0))), old)


def _is_at_least(version: str, first: tuple[int, int]) -> bool:
    """An unknown version, or one without a number, counts as a new one."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return found is None or (int(found[1]), int(found[2])) >= first


def _distribution(node: NodeView) -> Distribution:
    version = node.kubelet_version
    facts = facts_of(node)
    known = facts.distribution if facts is not None else ""
    if "+k3s" in version or known == "k3s":
        return "k3s"
    if "+rke2" in version or known == "rke2":
        return "rke2"
    if "+k0s" in version or known == "k0s":
        return "k0s"
    if "microk8s.io/cluster" in node.labels or known == "microk8s":
        return "microk8s"
    return ""


def do_gpus_support_mig(node: NodeView) -> bool | None:
    """Whether its GPUs can MIG: as feature discovery says, by the GPUs that are in it, or by the product's name. None:
    not known now."""
    if known := node.labels.get(MIG_CAPABLE_LABEL):
        return known == "true"
    if (by_device_ids := _supports_mig_by_device_ids(node)) is not None:
        return by_device_ids
    product = node.labels.get(GPU_PRODUCT_LABEL)
    return supports_mig(product) if product else None


def is_mig_capable(node: NodeView) -> bool:
    """Whether it is to have the MIG manager because its GPUs can MIG. Where that is not known now, a node that has it
    keeps it: labels of discovery may be missing for a while."""
    if (known := do_gpus_support_mig(node)) is not None:
        return known
    has_manager = node.labels.get(Operand.MIG_MANAGER.deploy_label)
    return bool(has_manager) and not user_override(node, Operand.MIG_MANAGER)


def _supports_mig_by_device_ids(node: NodeView) -> bool | None:
    """One that can is enough; None: that depends on GPUs that are not known."""
    facts = facts_of(node)
    found = [can_mig(gpu.device) for gpu in facts.gpus] if facts is not None else []
    if True in found:
        return True
    return None if None in found or not found else False


_SHARE_SUFFIX = re.compile(r"(?:-MIG-.+?)?(?:-SHARED)?$")
"""What feature discovery adds to a model's name where GPUs are cut or shared."""


def product_of(node: NodeView) -> str:
    """The model of its first GPU, ``NVIDIA-H100-80GB-HBM3``; empty: not known. By the GPU that is in it, which never
    changes; the label of feature discovery comes with the first driver, and changes when GPUs are cut or shared."""
    facts = facts_of(node)
    first = facts.gpus[:1] if facts is not None else ()
    known = [product_of_device(gpu.device, gpu.subsystem) for gpu in first]
    return "".join(known) or _SHARE_SUFFIX.sub("", node.labels.get(GPU_PRODUCT_LABEL, ""))


def is_excluded(node: NodeView, spec: ClusterPolicySpec) -> bool:
    """Whether people want no operand on it: by its label, or because virtual machines have its GPUs, from which a
    driver would take them away."""
    return node.labels.get(DEPLOY_OPERANDS_LABEL) == "false" or workload_of(node, spec) != CONTAINER


CONTAINER: Workload = "container"


def workload_of(node: NodeView, spec: ClusterPolicySpec) -> Workload:
    """Whom its GPUs are for. The label counts whatever the policy says: NVIDIA's operator ignores it as long as
    sandboxWorkloads is off, and gives the driver the GPUs of a node that people marked for virtual machines."""
    given = node.labels.get(WORKLOAD_LABEL)
    return next((each for each in WORKLOADS if each == given), spec.sandbox_workloads.default_workload)


WORKLOADS: tuple[Workload, ...] = get_args(Workload)


def unknown_workload(node: NodeView) -> str:
    """What its label says that names no workload; empty: it names one, or is not there. Then the policy's default
    counts, as with NVIDIA's operator."""
    given = node.labels.get(WORKLOAD_LABEL, CONTAINER)
    return "" if given in WORKLOADS else given or '""'


def user_override(node: NodeView, operand: Operand) -> str:
    """What people wrote into an operand's label; empty: nothing, so that the operator has it."""
    value = node.labels.get(DEPLOY_PREFIX + operand, "")
    return "" if value == "true" or value.startswith("paused-for-") else value


def was_rebooted(node: NodeView, opened: str) -> bool:
    """Whether it runs another boot than the one that operands were let in for."""
    return bool(opened and node.boot_id) and opened != node.boot_id


# --- GPUs that are still in use


def presence_of(node: NodeView, snapshot: Snapshot, gone_after: float) -> Presence:
    """Whether a node has GPUs, by who uses them, too. Until its pods are known, they may."""
    found = has_gpu(node, snapshot.now, gone_after)
    if not _is_leaving(node, found):
        return found
    workloads = snapshot.workloads.get(node.name)
    if workloads is None:
        return Presence("missing")
    users = tuple(sorted(_path(pod) for pod in gpu_pods(workloads) if not pod.terminating))
    return Presence("missing", users=users) if users else found


def nodes_about_to_lose_gpus(snapshot: Snapshot, chosen: ChosenPolicies) -> Iterator[str]:
    """Nodes whose GPUs count as gone from now on, unless a pod uses one."""
    if chosen.policy is None:
        return
    gone_after = chosen.policy.spec.discovery.gone_after_seconds
    for node in snapshot.nodes:
        if _is_leaving(node, has_gpu(node, snapshot.now, gone_after)):
            yield node.name


def _is_leaving(node: NodeView, found: Presence) -> bool:
    return found.state == "gone" and node.labels.get(GPU_PRESENT_LABEL) == "true"


def _path(pod: NodeWorkload) -> str:
    return f"{pod.namespace}/{pod.name}"

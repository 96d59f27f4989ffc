"""Writes the reference pages that follow from the code: docs/reasons.md, docs/metrics.md, docs/annotations.md,
docs/labels.md and docs/exporter-metrics.md.

    python scripts/generate_reference.py [REPOSITORY]

Reasons come from the enums of `purser.core.kubernetes.reasons.ExplainedReason`, metrics from the registries of the
servers, annotations, labels and resources from the tables here, whose names are the code's. A test compares the pages
with what is made here, and looks whether a name is missing.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from purser.adapters.reasons import PlanReason
from purser.agent.kubelet.facts.watching import KubeletFacts
from purser.agent.kubelet.refusals import RefusalReason
from purser.agent.metrics import AgentMetrics
from purser.agent.monitoring import NodeSnapshot, NodeStateCollector
from purser.agent.reasons import AgentReason
from purser.agent.settings import AgentSettings, FeatureOutlet
from purser.core import dialects, names
from purser.core.dialects import kai, policies, selectors
from purser.core.dialects.policies import WEIGHTED
from purser.core.explaining.grouping import describe_filter
from purser.core.explaining.reasons import FilterReason
from purser.core.explaining.start_reasons import StartReason
from purser.core.features.words import LABELS
from purser.core.fleet.totals import OTHER_NAMESPACES
from purser.core.grant.disputes import DisputeReason, HeldReason
from purser.core.kubernetes.reasons import ExplainedReason
from purser.core.monitoring import dcgm as dcgm_metrics
from purser.core.monitoring import hami as hami_metrics
from purser.core.placement.explain import wordings
from purser.core.placement.reasons import Reason
from purser.core.vendors import hami_nodes, volcano_nodes
from purser.kube.failures import ObjectFailures
from purser.kube.reasons import FailureReason
from purser.operator import names as operator_names
from purser.operator.metrics import OperatorMetrics
from purser.operator.model import Gauge
from purser.operator.reasons import OperatorReason
from purser.scheduler.capacity import MAX_NAMESPACES, CapacityMetrics
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.reasons import BindFailure, PendingReason, SchedulerReason
from purser.scheduler.webhook.review import DecisionReason
from purser.web.metrics import WebMetrics

REPOSITORY = Path(__file__).parents[1]
MARK = "<!-- Made by scripts/generate_reference.py from src/purser: change it there. -->\n\n"

REASONS_HEAD = """\
# Reasons

This page lists every reason of Purser's events, conditions and refusals: its word, what happened, and what to do
(empty: nothing). [Monitor](observability.md) says where to look.

"""
REASONS: tuple[tuple[type[ExplainedReason], str, str], ...] = (
    (SchedulerReason, "The scheduler's events", "Beside them kube-scheduler's own `FailedScheduling`."),
    (AgentReason, "The agent's events and condition", "On its node, and on the node's pods."),
    (
        DisputeReason,
        "A node's GPUs are in dispute",
        "Events of the node's agent, or of the scheduler where its records differ ([disputed GPUs](disputed-gpus.md)).",
    ),
    (
        RefusalReason,
        "The agent refuses a pod",
        "kubelet rejects the pod (`UnexpectedAdmissionError`), and an event of the agent says why; the metric"
        " `purser_agent_refusals_total` counts them. A controller replaces the pod; one without stays `Failed`.",
    ),
    (
        Reason,
        "A GPU or a node does not take a pod",
        "In the metric `purser_scheduler_filter_refusals_total`, and in the scheduler's log where a Binding fails."
        " A pod's [condition and event](pods.md#why-a-pod-waits) `FailedScheduling` say how many GPUs and nodes there"
        " are of each, in the words of the third column.",
    ),
    (
        FilterReason,
        "kube-scheduler does not take a pod",
        "What `purser why` says of kube-scheduler's own filters, in the words of the third column, beside the reasons"
        " of the table above ([why a pod waits](why.md)).",
    ),
    (
        StartReason,
        "A pod on a node does not run, or failed",
        "What `purser why` says of a pod that does not run on its node or has failed: words of kubelet and of"
        " containers' states, with what helps. `OutOf...` ends with the resource, as in `OutOfcpu`.",
    ),
    (
        PendingReason,
        "A pod waits that no GPU and no node refused",
        "Label `reason` of the metric `purser_cluster_pending_pods`, beside the reasons of the table above.",
    ),
    (
        BindFailure,
        "A pod is not bound",
        "Label `reason` of the metric `purser_scheduler_bind_failures_total`; the scheduler's log and the pod's"
        " `FailedScheduling` have the message.",
    ),
    (
        DecisionReason,
        "Decisions of the webhook",
        "Label `reason` of the metric `purser_scheduler_webhook_decisions_total`; who creates a pod that is denied"
        " gets the message. Of Deployments and the like the webhook `warn` is asked, which denies nothing: it warns.",
    ),
    (
        OperatorReason,
        "The operator's events and conditions",
        "On nodes, and in the [status of the ClusterPolicy](operator-reference.md#status): in its conditions, in"
        " `failingNodes`, and in `operands` for operands that are not ready everywhere. If the pod of an operand"
        " fails, the reason is kubelet's, such as `CrashLoopBackOff`.",
    ),
    (
        FailureReason,
        "Events of all parts",
        "On objects that Purser goes on without; of nodes `HandlingFailed` is in the ClusterPolicy's status, too.",
    ),
    (
        PlanReason,
        "An event of `purser plan free --apply`",
        "On pods that it evicts ([free whole GPUs](plan.md)).",
    ),
    (
        HeldReason,
        "Why a pod is in an agent's dispute",
        "In the node's annotation `purser.dev/disputes` ([disputed GPUs](disputed-gpus.md)).",
    ),
)

DETAILS: dict[type[ExplainedReason], tuple[str, Callable[[Any], str]]] = {
    Reason: ("in `FailedScheduling`", lambda reason: ", ".join(map(_as_code, wordings(reason)))),
    FilterReason: ("in `purser why`", lambda reason: _as_code(describe_filter(reason))),
    DecisionReason: ("decision", lambda why: "denied" if why.denies else "allowed"),
}
"""A further column of a table."""

EXPORTERS_HEAD = """\
# Metrics of other exporters

This page says how dashboards and alerts made for other exporters go on working.
With `agent.metricsAlsoAs` ([`--metrics-also-as`](options.md#purser-agent-run)) agents export the metrics of NVIDIA's
DCGM exporter (`dcgm`), of HAMi's monitor (`hami`), or by HAMi's older names (`hami-legacy`), so that dashboards and
alerts that were made for these go on working. They are at the same port as [Purser's own](metrics.md). Off by default:
beside the exporter itself every GPU is there twice, and sums are doubled. Under the [operator](operator.md), set
`dcgmExporter.enabled: false`, and `--metrics-also-as=dcgm` in `devicePlugin.args`.

```console
$ helm upgrade purser deploy/helm/purser -n purser-system --reset-then-reuse-values --set 'agent.metricsAlsoAs={dcgm}'
```

GPUs are measured every ten seconds, and what was measured more than 30 seconds ago is left out. If a GPU or a driver
does not report something, that metric of that GPU is missing: there are no zeros and no old values in its place.
Kubelet is asked every ten seconds, too, which pods hold GPUs; if it does not answer for 30 seconds, no pod is named.

"""
EXPORTERS_DCGM = """\
## DCGM exporter

Names, types and labels are those of dcgm-exporter 4.6.0-4.8.3 with its default file of counters. Labels are `gpu`,
`UUID`, `pci_bus_id`, `device`, `modelName`, `hostname`, `DCGM_FI_DRIVER_VERSION`, of a GPU instance also
`GPU_I_PROFILE` and `GPU_I_ID`, and `pod`, `namespace` and `container` of the holder of the GPU or instance by kubelet's
PodResources, also of pods without a grant. `Hostname`, the label of exporters before 4.8.3, is there, too. Some things
differ:

- **A GPU has one sample of each metric, also if pods share it.** A pod is named if it holds the GPU alone; a container
  if it is the only one of that pod. NVIDIA's exporter names the last pod of several, or, with
  `KUBERNETES_VIRTUAL_GPUS`, repeats the GPU's sample for each. NVIDIA's dashboard (12239 on grafana.com) shows each
  sample of a GPU as a line "GPU 0" and adds power up with `sum(DCGM_FI_DEV_POWER_USAGE)`: repeated samples would be
  equal lines, and too large a sum. What pods that share a GPU use is in `purser_container_memory_used_bytes` and
  `purser_container_utilization_ratio`.
- **In MIG mode each GPU instance has what is measured of it, and the GPU has the rest once**, without a pod. NVIDIA's
  exporter repeats temperature and power for every instance.
- `DCGM_FI_PROF_...` exist on Hopper and newer GPUs. For older ones they need DCGM: panels such as "Tensor Core
  Utilization" stay empty there.
- The first measurement after a start has no rates: `DCGM_FI_PROF_...` and NVLink bandwidth begin with the second.
- Fields that the exporter's file has commented out (ECC errors, retired pages, violations, NVLink errors, further
  profiling fields, counts of the exporter itself) are not exported.
- dcgm-exporter 4.9.0 gives fields new names and base units (`DCGM_FI_SYSTEM_DRIVER_VERSION` and others). These names
  are not exported: dashboards made for 4.9.0 need that exporter.

"""
EXPORTERS_HAMI = """
## HAMi

Names, labels and units are those of HAMi's monitor and, where an agent knows it of its own node, of HAMi's scheduler.
HAMi's "ratios" are percentages, but for `hami_node_gpu_memory_allocated_ratio`. All have the label `zone="vGPU"`.

- The memory of a container is what the driver lists for its processes. HAMi exports what its library counted, and
  nothing of a container before its first CUDA call; Purser exports it for every container that holds a
  share, 0 before that.
- Nothing is read from the memory that HAMi-core shares with HAMi's monitor. What only that has is not exported; the
  second table says so of each name.

"""
EXPORTERS_NOT_HAMI = """
Not exported, of HAMi's monitor and scheduler:

"""
METRICS_HEAD = """\
# Metrics

This page lists every metric that Purser's servers export. [Monitor](observability.md#prometheus) says how
Prometheus finds them. A histogram has `_bucket`, `_sum` and `_count`.

"""


_NOBODY: Any = None
"""For what is asked only when servers run."""

NAMES_HEAD = """\
# Annotations, labels and resources

This page lists what Purser reads and writes on objects of the cluster, apart from their specs.
Set only what people write: through the
rest the parts of Purser, and NVIDIA's, communicate.

"""
Name = tuple[str, str, str, str, str]
"""Name, object, who writes it, who reads it, and what it means."""

PEOPLE, WEBHOOK, SCHEDULER, AGENT, OPERATOR = "people", "webhook", "scheduler", "agent", "operator"
PLACING = f"{WEBHOOK}, {SCHEDULER}"
UPGRADES = "NVIDIA's name; memory of a driver upgrade: "
NAMES: dict[str, tuple[Name, ...]] = {
    "Resources": (
        (
            names.GPU_RESOURCE,
            "container",
            PEOPLE,
            "all",
            "How many GPUs, or slots of GPUs; the only one that kubelet allocates.",
        ),
        *((resource, "container", PEOPLE, PLACING, word.about) for resource, word in dialects.WORDS.items()),
    ),
    "Annotations and labels of pods that people set": (
        (
            names.NODE_POLICY_ANNOTATION,
            "Pod",
            PEOPLE,
            PLACING,
            "Annotation: which node is best ([policies](pods.md#policies)).",
        ),
        (
            names.ENFORCEMENT_ANNOTATION,
            "Pod, Namespace",
            PEOPLE,
            PLACING,
            f"Annotation: `{names.ENFORCEMENT_REQUIRED}`: no share is placed where nothing enforces it.",
        ),
        (names.GPU_POLICY_ANNOTATION, "Pod", PEOPLE, PLACING, "Annotation: which of a node's GPUs are best."),
        (
            names.GPU_NIC_ANNOTATION,
            "Pod",
            PEOPLE,
            PLACING,
            "Annotation: `preferred`, `required`: GPUs and network devices of a container under one PCIe switch.",
        ),
        (policies.HAMI_NODE_POLICY, "Pod", PEOPLE, PLACING, "Annotation: HAMi's name for the node policy."),
        (policies.HAMI_GPU_POLICY, "Pod", PEOPLE, PLACING, "Annotation: HAMi's name for the GPU policy."),
        (
            policies.HAMI_WEIGHTS,
            "Pod",
            PEOPLE,
            PLACING,
            "Annotation: weights of slots, cores and memory in HAMi's scores.",
        ),
        (
            selectors.USE_GPUTYPE,
            "Pod",
            PEOPLE,
            PLACING,
            "Annotation: only GPUs whose model contains one of these words.",
        ),
        (
            selectors.NOUSE_GPUTYPE,
            "Pod",
            PEOPLE,
            PLACING,
            "Annotation: no GPUs whose model contains one of these words.",
        ),
        *(
            (each, "Pod", PEOPLE, PLACING, "Annotation: only these GPUs.")
            for each in (selectors.USE_GPUUUID, selectors.VOLCANO_USE_GPUUUID)
        ),
        *(
            (each, "Pod", PEOPLE, PLACING, "Annotation: none of these GPUs.")
            for each in (selectors.NOUSE_GPUUUID, selectors.VOLCANO_NOUSE_GPUUUID)
        ),
        (selectors.NUMA_BIND, "Pod", PEOPLE, PLACING, "Annotation: all GPUs of a container from one NUMA node."),
        *(
            (each, "Pod", PEOPLE, PLACING, "Annotation: the mode that the GPUs must be in.")
            for each in (selectors.VGPU_MODE, selectors.VOLCANO_VGPU_MODE)
        ),
        (selectors.MIG_PREFERENCE, "Pod", PEOPLE, PLACING, "Annotation: MIG profiles to prefer to smaller ones."),
        (kai.GPU_FRACTION, "Pod", PEOPLE, PLACING, "Annotation: KAI's word for a part of a GPU, such as `0.5`."),
        (kai.KAI_GPU_MEMORY, "Pod", PEOPLE, PLACING, "Annotation: KAI's word for MiB of a GPU."),
        (kai.GPU_FRACTION_NUM_DEVICES, "Pod", PEOPLE, PLACING, "Annotation: as much on each of so many GPUs."),
        (
            kai.GPU_FRACTION_CONTAINER_NAME,
            "Pod",
            PEOPLE,
            PLACING,
            "Annotation: which container gets the share; otherwise the first.",
        ),
        (kai.KAI_MPS, "Pod", PEOPLE, WEBHOOK, "Annotation: refused beside whole GPUs, as by KAI."),
        (
            kai.SHARED_GPU_CONFIGMAP,
            "Pod",
            "KAI's webhook",
            WEBHOOK,
            "Annotation: refused, for KAI's binder alone serves such a pod.",
        ),
        *(
            (each, "Pod, Namespace", PEOPLE, PLACING, "Label: `ignore` keeps the webhook away.")
            for each in names.WEBHOOK_LABELS
        ),
        (
            names.INIT_RESOURCES_ANNOTATION,
            "Pod",
            "webhook of older releases",
            SCHEDULER,
            "Annotation: what init containers ask for.",
        ),
        (
            names.AWAITS_GRANT_ANNOTATION,
            "Pod",
            "webhook, scheduler",
            "scheduler, agent",
            "Annotation: of a pod of another scheduler that is served: a grant follows (`true`), or none (`false`).",
        ),
        (
            names.WEBHOOK_PROBE_ANNOTATION,
            "Binding",
            "scheduler",
            "webhook",
            "Annotation: on a Binding in a dry run, which the webhook denies if the API server calls the webhook.",
        ),
        (
            names.MEMORY_UNITS_ANNOTATION,
            "Pod",
            "webhook",
            "scheduler, agent",
            "Annotation: MiB of one of each resource that is not counted in its usual unit.",
        ),
        (
            operator_names.UPGRADE_DRAIN_SKIP_LABEL,
            "Pod",
            PEOPLE,
            OPERATOR,
            "Label: the pod is not drained for a driver upgrade.",
        ),
    ),
    "Annotations that Purser writes on pods": (
        (
            names.GRANT_ANNOTATION,
            "Pod",
            SCHEDULER,
            f"{SCHEDULER}, {AGENT}",
            "The grant: which GPUs each container holds.",
        ),
        (
            names.GRANT_SIGNATURE_ANNOTATION,
            "Pod",
            SCHEDULER,
            f"{SCHEDULER}, {AGENT}",
            "Ed25519 signature over the grant.",
        ),
        (
            names.ASKED_ANNOTATION,
            "Event",
            SCHEDULER,
            "people",
            "On the event `Granted`: what the pod asks for, as JSON; `purser backtest` knows pods by it that are gone.",
        ),
        (
            names.ROOM_ANNOTATION,
            "Pod",
            SCHEDULER,
            "kube-scheduler",
            "When a refused pod was found to fit, or got another quota; wakes kube-scheduler.",
        ),
        *(
            (name, "Pod", SCHEDULER, f"{system}'s tools", about)
            for system, dialect in dialects.SHARING.items()
            for name, about in dialect.RECORDS.items()
            if about
        ),
    ),
    "Annotations of nodes": (
        (names.INVENTORY_ANNOTATION, "Node", AGENT, SCHEDULER, "The node's GPUs."),
        (
            names.CORDONED_GPUS_ANNOTATION,
            "Node",
            PEOPLE,
            f"{SCHEDULER}, {AGENT}",
            "GPUs that get no new pods: uuids, separated by commas (`purser cordon gpu`, `purser plan free --apply`).",
        ),
        (names.HAMI_CORDON_ANNOTATION, "Node", PEOPLE, f"{SCHEDULER}, {AGENT}", "The same in HAMi's words."),
        (
            hami_nodes.REGISTER_ANNOTATION,
            "Node",
            f"HAMi's device plugin, {AGENT}",
            f"{SCHEDULER}, HAMi's scheduler",
            "The node's GPUs in HAMi's words. An agent keeps it up to date where it is.",
        ),
        (
            volcano_nodes.VGPU_REGISTER_ANNOTATION,
            "Node",
            AGENT,
            "Volcano's scheduler",
            "The node's GPUs in the words of Volcano's vGPUs. An agent keeps it up to date where it is.",
        ),
        (
            volcano_nodes.VGPU_HANDSHAKE_ANNOTATION,
            "Node",
            f"Volcano's scheduler, {AGENT}",
            f"Volcano's scheduler, {AGENT}",
            "Volcano's older releases ask whether the node is alive, and an agent answers.",
        ),
        *(
            (lock.annotation, "Node", "Volcano's scheduler", SCHEDULER, "A lock, which Purser's scheduler removes.")
            for lock in volcano_nodes.VOLCANO_LOCKS
        ),
        (
            hami_nodes.PLUGIN_LOCK.annotation,
            "Node",
            SCHEDULER,
            "HAMi's device plugin",
            "For which pod kubelet asks the plugin, which removes it.",
        ),
        (names.KUBELET_ANNOTATION, "Node", AGENT, SCHEDULER, "How kubelet is configured and what it has given away."),
        (
            names.HEALTH_CORDON_ANNOTATION,
            "Node",
            AGENT,
            AGENT,
            "The agent cordoned the node because a GPU needs a reboot ([health](health.md#what-purser-may-do)).",
        ),
        (names.DISPUTES_ANNOTATION, "Node", AGENT, SCHEDULER, "[Disputed GPUs](disputed-gpus.md), if any."),
        (names.NODE_FACTS_ANNOTATION, "Node", "discovery", OPERATOR, "GPUs by PCI id, system and kernel."),
        (names.MIG_WANTED_ANNOTATION, "Node", OPERATOR, "MIG worker", "The MIG layout that the node is to have."),
        (names.MIG_RESULT_ANNOTATION, "Node", "MIG worker", OPERATOR, "What became of the last MIG layout."),
        (operator_names.MIG_STEP_ANNOTATION, "Node", OPERATOR, OPERATOR, "Step of a MIG change under way."),
        (
            operator_names.GPU_MISSING_SINCE_ANNOTATION,
            "Node",
            OPERATOR,
            OPERATOR,
            "Since when the node's GPUs are not detected.",
        ),
        (operator_names.OPENED_BOOT_ANNOTATION, "Node", OPERATOR, OPERATOR, "The boot for which operands were let in."),
        (operator_names.LET_IN_ANNOTATION, "Node", OPERATOR, OPERATOR, "When an operand was last let in."),
        (
            names.CORDONED_BY_ANNOTATION,
            "Node",
            OPERATOR,
            OPERATOR,
            "Why Purser cordoned the node: `driver-upgrade` or `mig-change`.",
        ),
        (
            operator_names.UPGRADE_STEP_START_ANNOTATION,
            "Node",
            OPERATOR,
            OPERATOR,
            "When the present step of a driver upgrade began.",
        ),
        (
            operator_names.UPGRADE_TARGET_ANNOTATION,
            "Node",
            OPERATOR,
            OPERATOR,
            "Which template the driver upgrade leads to.",
        ),
        (
            names.UPGRADE_FAILURE_ANNOTATION,
            "Node",
            OPERATOR,
            "people, operator",
            "Why the driver upgrade failed.",
        ),
        (
            operator_names.UPGRADE_RESTART_ONLY_ANNOTATION,
            "Node",
            OPERATOR,
            OPERATOR,
            "The driver's pod is restarted without unloading the driver.",
        ),
        (operator_names.UPGRADE_OLD_DRIVER_LEFT_ANNOTATION, "Node", OPERATOR, OPERATOR, "The old driver has left."),
        (
            operator_names.UPGRADE_AWAY_SINCE_ANNOTATION,
            "Node",
            OPERATOR,
            OPERATOR,
            "Since when the node is away in an upgrade.",
        ),
        (
            operator_names.UPGRADE_INITIAL_CORDON_ANNOTATION,
            "Node",
            OPERATOR,
            OPERATOR,
            f"{UPGRADES}the node was cordoned before it.",
        ),
        (
            operator_names.UPGRADE_WAIT_START_ANNOTATION,
            "Node",
            OPERATOR,
            OPERATOR,
            f"{UPGRADES}since when it waits for pods.",
        ),
        (
            operator_names.UPGRADE_VALIDATION_START_ANNOTATION,
            "Node",
            OPERATOR,
            OPERATOR,
            f"{UPGRADES}since when it waits for validation.",
        ),
        (
            operator_names.UPGRADE_REQUESTED_ANNOTATION,
            "Node",
            PEOPLE,
            OPERATOR,
            "NVIDIA's name: upgrade the node's driver now.",
        ),
    ),
    "Labels of nodes": (
        (operator_names.DEPLOY_OPERANDS_LABEL, "Node", PEOPLE, OPERATOR, "`false` takes all operands away."),
        (
            operator_names.WORKLOAD_LABEL,
            "Node",
            PEOPLE,
            f"{OPERATOR}, DaemonSets",
            "NVIDIA's name: `vm-passthrough` and `vm-vgpu` give the GPUs to virtual machines: no operand and no agent"
            " runs there; `container` is the default.",
        ),
        (
            f"{names.DEPLOY_PREFIX}<operand>",
            "Node",
            "operator, people",
            "DaemonSets",
            "`true` where the operand runs; `false` by people keeps it away.",
        ),
        (names.GPU_PRESENT_LABEL, "Node", OPERATOR, "DaemonSets", "The node has GPUs."),
        (
            names.POOL_LABEL,
            "Node, DaemonSet",
            OPERATOR,
            "DaemonSets",
            "Nodes of equal system, kernel and driver profile.",
        ),
        (operator_names.RUNTIME_LABEL, "Node, DaemonSet", OPERATOR, "DaemonSets", "The node's container runtime."),
        (
            names.UPGRADE_STATE_LABEL,
            "Node",
            OPERATOR,
            "operator, people",
            "NVIDIA's name: state of the driver upgrade.",
        ),
        (
            operator_names.UPGRADE_SKIP_LABEL,
            "Node",
            PEOPLE,
            OPERATOR,
            "NVIDIA's name: `true` leaves the node's driver alone.",
        ),
        (
            names.MIG_CONFIG_LABEL,
            "Node",
            PEOPLE,
            OPERATOR,
            "NVIDIA's name: the MIG layout that the node is to have.",
        ),
        (names.MIG_STATE_LABEL, "Node", OPERATOR, PEOPLE, "NVIDIA's name: `pending`, `success` or `failed`."),
        (
            operator_names.MIG_CAPABLE_LABEL,
            "Node",
            "GPU feature discovery, people",
            OPERATOR,
            "NVIDIA's name: the GPUs support MIG.",
        ),
        (
            operator_names.GPU_PRODUCT_LABEL,
            "Node",
            "GPU feature discovery",
            OPERATOR,
            "NVIDIA's name: the GPUs' model.",
        ),
        *(
            (each, "Node", "node-feature-discovery", OPERATOR, "The node has a PCI device of NVIDIA's.")
            for each in operator_names.NFD_GPU_LABELS
        ),
        (operator_names.NFD_OS_ID_LABEL, "Node", "node-feature-discovery", OPERATOR, "Operating system."),
        (operator_names.NFD_OS_VERSION_LABEL, "Node", "node-feature-discovery", OPERATOR, "Its version."),
        (operator_names.NFD_KERNEL_LABEL, "Node", "node-feature-discovery", OPERATOR, "Kernel."),
    ),
    "On other objects": (
        (
            operator_names.RESUME_UPGRADE_ANNOTATION,
            "ClusterPolicy",
            PEOPLE,
            OPERATOR,
            "Annotation: resumes a [halted upgrade](driver-upgrades.md#resume-a-halted-upgrade).",
        ),
        (
            operator_names.FINALIZER,
            "ClusterPolicy",
            OPERATOR,
            OPERATOR,
            "Finalizer: what the policy made is removed first.",
        ),
        (
            operator_names.MANAGED_BY_LABEL,
            "all of the operator's",
            OPERATOR,
            OPERATOR,
            f"Label: `{operator_names.FIELD_MANAGER}` on all that it owns.",
        ),
        (
            operator_names.OPERAND_LABEL,
            "all of the operator's",
            OPERATOR,
            OPERATOR,
            "Label: which operand it belongs to.",
        ),
        (
            operator_names.APPLIED_HASH_ANNOTATION,
            "all of the operator's",
            OPERATOR,
            OPERATOR,
            "Annotation: hash of what was applied.",
        ),
        (operator_names.TEMPLATE_LABEL, "DaemonSet, Pod", OPERATOR, OPERATOR, "Label: hash of the pod's template."),
        (
            operator_names.DRIVER_CONFIG_LABEL,
            "Pod",
            OPERATOR,
            OPERATOR,
            "Label: digest of what the driver is loaded from.",
        ),
        (names.ROTATE_ANNOTATION, "Secret", PEOPLE, SCHEDULER, "Annotation: [make a new signing key](keys.md#rotate)."),
    ),
}

OUTLETS = {
    FeatureOutlet.OFF: (
        "Nothing; the default. The operator runs NVIDIA's feature discovery: one of the two is enough for a node.",
        "",
    ),
    FeatureOutlet.FILE: (
        "A file for node-feature-discovery's worker. It goes when the agent stops, but for `--keep-feature-file`.",
        "node-feature-discovery's folder `features.d` on the node",
    ),
    FeatureOutlet.NODE_FEATURE: (
        "A NodeFeature object named as NVIDIA's, which is taken over. It goes with the agent's DaemonSet.",
        "node-feature-discovery's NodeFeature API; the chart grants the permissions",
    ),
    FeatureOutlet.NODE_LABELS: (
        "The node itself. Of the labels below those that are not found are removed, also if Purser did not write them.",
        "permission to write these labels; the chart has Purser's policies of node writes allow them",
    ),
}
"""What each publishes, and what it needs."""
LABELS_HEAD = """\
# Labels of GPU nodes

This page lists the labels that say which GPUs a node has: those of NVIDIA's GPU feature discovery, by its rules, and
one of Purser's own. The agent publishes them where
`agent.featureLabels` ([`--feature-labels`](options.md#purser-agent-run)) says:

{outlets}
Only what differs is written, when GPUs, driver or labels change; while no driver answers, labels
stay. Who changes the outlet removes what the former one left. With the operator it is `devicePlugin.featureLabels` of
the policy, beside `gfd.enabled: false`. If node-feature-discovery admits listed namespaces of labels only, `nvidia.com`
and `gpu.purser.dev` have to be among them.

- Labels whose value is unknown are omitted.
- Values lose what Kubernetes refuses in them: brackets and the like, dots at either end, all beyond 63 characters.
- A node with GPUs of several models has the most frequent one in `nvidia.com/gpu.product` (on a tie, the first in
  alphabetical order), and each under a label of its own: `kubectl get nodes -l gpu.purser.dev/NVIDIA-L4`.
- Shares of memory, which HAMi's and Volcano's words ask for, are not replicas: `nvidia.com/gpu.replicas` is `1`.
- GPU instances that are made on demand have no labels: they come and go with pods.
- `nvidia.com/gpu.clique` is omitted where no GPU has joined an NVLink domain beyond its machine, or GPUs have joined
  different ones. It follows the fabric manager within a probe's interval, without a restart of the agent.

"""


def main(repository: Path) -> None:
    """Write all of it."""
    for path, text in written().items():
        (repository / path).write_text(text)


def written() -> dict[Path, str]:
    """The pages, by path in the repository."""
    return {
        Path("docs/reasons.md"): reasons(),
        Path("docs/metrics.md"): metrics(),
        Path("docs/annotations.md"): annotations(),
        Path("docs/labels.md"): labels(),
        Path("docs/exporter-metrics.md"): exporters(),
    }


def reasons() -> str:
    """A table for each enum."""
    tables = [f"## {title}\n\n{told}\n\n{_of_reasons(kind)}" for kind, title, told in REASONS]
    return MARK + REASONS_HEAD + "\n".join(tables)


def _of_reasons(kind: type[ExplainedReason]) -> str:
    head = ["reason", "on", "what happened", "what to do"]
    rows = [[f"`{each}`", each.about, linked(each.happened), linked(each.remedy)] for each in kind]
    if kind in DETAILS:
        title, detail = DETAILS[kind]
        for line, cell in zip([head, *rows], [title, *map(detail, kind)], strict=True):
            line.insert(2, cell)
    return table(head, rows)


def metrics() -> str:
    """A table for each server, and one for what they have in common."""
    tables = [
        f"## {title}\n\n{told}\n\n" + table(("metric", "type", "labels", "what"), sorted(map(_metric, families)))
        for title, told, families in _servers()
    ]
    return MARK + METRICS_HEAD + "\n".join(tables)


def annotations() -> str:
    """A table for each kind of object."""
    head = ("name", "on", "written by", "read by", "what")
    tables = [
        f"## {title}\n\n" + table(head, ((f"`{name}`", *rest) for name, *rest in rows)) for title, rows in NAMES.items()
    ]
    return MARK + NAMES_HEAD + "\n".join(tables)


def labels() -> str:
    """A table for each group."""
    tables = [
        f"## {title}\n\n" + table(("label", "what"), ((f"`{name}`", what) for name, what in rows))
        for title, rows in LABELS.items()
    ]
    outlets = table(("outlet", "what", "needs"), ((f"`{outlet}`", *OUTLETS[outlet]) for outlet in FeatureOutlet))
    return MARK + LABELS_HEAD.format(outlets=outlets) + "\n".join(tables)


def exporters() -> str:
    """A table for each of the other exporters."""
    dcgm = table(
        ("metric", "type", "unit", "what", "from NVML", "limits"),
        (
            (f"`{each.name}`", each.type.value, each.unit, each.help, f"`{each.call}`", _dcgm_limits(each))
            for each in dcgm_metrics.METRICS
        ),
    )
    older = {each.fact: each for each in hami_metrics.OLD_METRICS}
    hami = table(
        ("metric", "labels", "older name", "what"),
        (
            (
                f"`{each.name}`",
                ", ".join(f"`{label}`" for label in each.labels.values()),
                f"`{older[each.fact].name}`" if each.fact in older else "",
                each.about,
            )
            for each in hami_metrics.METRICS
        ),
    )
    missing = table(("metric", "why not"), ((f"`{name}`", why) for name, why in hami_metrics.NOT_EXPORTED.items()))
    return MARK + EXPORTERS_HEAD + EXPORTERS_DCGM + dcgm + EXPORTERS_HAMI + hami + EXPORTERS_NOT_HAMI + missing


def _dcgm_limits(metric: dcgm_metrics.DcgmMetric) -> str:
    by_instance = ("in MIG mode of each GPU instance",) if metric.per_instance else ()
    return "; ".join(filter(None, (metric.limits, *by_instance)))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"|{''.join(f' {cell} |' if cell else ' |' for cell in line)}\n" for line in lines)


def linked(sentence: str) -> str:
    """With links to the pages that it names, and code as code."""
    return re.sub(r"docs/([a-z-]+\.md)", r"[\1](\1)", sentence)


def _as_code(clause: str) -> str:
    """Numbers, and what differs from node to node, left out."""
    return f"`{re.sub(r'[0-9]+|[.]{3}', '…', clause)}`"


def _servers() -> Iterator[tuple[str, str, Iterable[Any]]]:
    agent = AgentMetrics()
    agent.registry.register(NodeStateCollector(lambda: NodeSnapshot(None, {}, {}, (), 0, registered=False, streams=0)))
    KubeletFacts(AgentSettings(node_name="any"), _NOBODY, _NOBODY, agent.registry)
    operator = OperatorMetrics()
    gauges = operator._gauges
    gauges.values = dict.fromkeys(Gauge, 0.0)
    gauges.operands = {("", ""): 0.0}
    shared = CollectorRegistry()
    ObjectFailures().report_to(shared, _NOBODY)
    yield (
        "The agent",
        "Port 9440 of `purser-agent`. `purser_device_info` names each GPU's UUID.",
        _families(agent.registry),
    )
    scheduler = SchedulerMetrics()
    CapacityMetrics(scheduler.registry)
    yield (
        "The scheduler",
        "Port 9401 of `purser-scheduler`. `purser_cluster_...` is exported only by the active replica. Of"
        f" namespaces, {MAX_NAMESPACES} have series of their own; the rest are `{OTHER_NAMESPACES}`."
        f" `policy` is the node policy of the pods, the scheduler's if they name none, or `{WEIGHTED}`.",
        _families(scheduler.registry),
    )
    yield (
        "The operator",
        "Port 9402 of `purser-operator`. Gauges are the leader's: other replicas have none. `gpu_operator_...` is as in"
        " NVIDIA's operator.",
        _families(operator.registry),
    )
    yield "The web pages", "The port of `purser web`, on the machine where it runs.", _families(WebMetrics().registry)
    yield (
        "Agent, scheduler and operator",
        "Anything but 0 of stage `handle`, or of a loop, is a bug: please report it.",
        _families(shared),
    )


def _families(registry: CollectorRegistry) -> list[Any]:
    """Metrics and families alike have names, types, labels and helps, which clients keep to themselves."""
    found: list[Any] = []
    for collector in registry._collector_to_names:
        found += [collector] if hasattr(collector, "_documentation") else collector.collect()
    return found


def _metric(each: Any) -> tuple[str, ...]:
    is_family = isinstance(each, Metric)
    kind = each.type if is_family else each._type
    name = each.name if is_family else each._name
    text = each.documentation if is_family else each._documentation
    labels = ["version"] if kind == "info" else list(each._labelnames)
    ending = {"counter": "_total", "info": "_info"}.get(kind, "")
    return f"`{name}{ending}`", kind, ", ".join(f"`{label}`" for label in labels), linked(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY)

"""Why kube-scheduler's own filters keep a pod from a node, or from all."""

from purser.core.kubernetes.reasons import ExplainedReason


class FilterReason(ExplainedReason):
    """The names of kube-scheduler's plugins, where one plugin has one reason."""

    UNSCHEDULABLE = (
        "NodeUnschedulable",
        "Node",
        "The node is cordoned.",
        "Uncordon the node once the maintenance is done.",
    )
    TAINT = (
        "TaintToleration",
        "Node",
        "The node has a taint that the pod does not tolerate.",
        "Add a toleration, or remove the taint.",
    )
    SELECTOR = (
        "NodeSelector",
        "Node",
        "The node lacks a label that the pod's node selector requires.",
        "Change the node selector, or label the node.",
    )
    AFFINITY = (
        "NodeAffinity",
        "Node",
        "The node does not meet the pod's required node affinity.",
        "Change the affinity, or label the node.",
    )
    PORTS = (
        "NodePorts",
        "Node",
        "Another pod on the node uses a host port that the pod needs.",
        "Remove hostPort, or wait until the other pod ends.",
    )
    RESOURCES = (
        "NodeResourcesFit",
        "Node",
        "The node has less of a resource available than the pod requests.",
        "Request less, wait until pods on the node end, or add a node that has the resource.",
    )
    PODS = (
        "TooManyPods",
        "Node",
        "The node already runs its maximum number of pods.",
        "Wait until pods on the node end, or raise maxPods in its kubelet's configuration.",
    )
    VOLUME = (
        "VolumeBinding",
        "Node",
        "One of the pod's volumes is not available on the node because of its PersistentVolume's node affinity.",
        "Allow the pod to run on a node where its volume is available.",
    )
    SPREAD = (
        "PodTopologySpread",
        "Node",
        "The pod would be spread more unevenly than its topology spread constraints allow, or the node lacks a label "
        "that a constraint names.",
        "Raise maxSkew, free capacity in the domains that run fewer of these pods, or label the node.",
    )
    POD_AFFINITY = (
        "InterPodAffinity",
        "Node",
        "None of the pods that the pod's affinity requires runs in the same topology domain.",
        "Change the affinity, or start the required pods first.",
    )
    POD_ANTI_AFFINITY = (
        "InterPodAntiAffinity",
        "Node",
        "The pod's anti-affinity excludes another pod in the same topology domain, or that pod's anti-affinity "
        "excludes this pod.",
        "Change the anti-affinity, or wait until the other pod ends.",
    )
    RESOURCE_CLAIM = (
        "DynamicResources",
        "Node",
        "One of the pod's ResourceClaims is allocated, and the node cannot use its devices.",
        "Allow the pod to run on a node that can use the devices, or delete the claim once no pod uses it, so that it "
        "is allocated again.",
    )
    NOT_ASKED = (
        "NotAsked",
        "Node",
        "Only from a decision log: kube-scheduler did not ask Purser about the node, because another filter plugin "
        "rejected it.",
        "Run purser why on the cluster or on a dump of its objects, because a decision log does not contain the "
        "results of other filters.",
    )

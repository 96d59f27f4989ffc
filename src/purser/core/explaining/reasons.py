"""Why kube-scheduler's own filters keep a pod from a node, or from all."""

from purser.core.kubernetes.reasons import ExplainedReason


class FilterReason(ExplainedReason):
    """The names of kube-scheduler's plugins, where one plugin has one reason."""

    UNSCHEDULABLE = (
        "NodeUnschedulable",
        "Node",
        "The node is cordoned.",
        "Uncordon it, once what it was cordoned for is done.",
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
        "The node lacks a label of the pod's node selector.",
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
        "A pod on the node has a host port that the pod wants.",
        "Use no hostPort, or wait until that pod ends.",
    )
    RESOURCES = (
        "NodeResourcesFit",
        "Node",
        "Less of a resource is free on the node than the pod requests.",
        "Request less, or wait until pods there end.",
    )
    PODS = (
        "TooManyPods",
        "Node",
        "The node has as many pods as it may have.",
        "Wait until pods there end, or raise maxPods of its kubelet.",
    )
    VOLUME = (
        "VolumeBinding",
        "Node",
        "A volume of the pod is not available on the node: the node affinity of its PersistentVolume keeps it away.",
        "Place the pod where its volume is.",
    )
    SPREAD = (
        "PodTopologySpread",
        "Node",
        "The pod would be spread more unevenly than its topology spread constraints allow.",
        "Raise maxSkew, or make room where fewer of these pods are.",
    )
    POD_AFFINITY = (
        "InterPodAffinity",
        "Node",
        "No pod that the pod's affinity requires is in the same place.",
        "Change the affinity, or place those pods first.",
    )
    POD_ANTI_AFFINITY = (
        "InterPodAntiAffinity",
        "Node",
        "A pod is in the same place that the pod's anti-affinity, or its own, keeps apart.",
        "Change the anti-affinity, or wait until that pod ends.",
    )
    NOT_ASKED = (
        "NotAsked",
        "Node",
        "Of a decision log: Purser was not asked about the node, for kube-scheduler's own filters keep the pod away.",
        "Ask the cluster, or a dump of its objects: a log does not have what other filters say.",
    )

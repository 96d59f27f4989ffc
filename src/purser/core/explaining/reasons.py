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
        "Another pod on the node uses a host port that the pod needs.",
        "Remove hostPort, or wait until that pod ends.",
    )
    RESOURCES = (
        "NodeResourcesFit",
        "Node",
        "The node has less of a resource free than the pod requests.",
        "Request less, or wait until pods there end.",
    )
    PODS = (
        "TooManyPods",
        "Node",
        "The node runs its maximum number of pods.",
        "Wait until pods there end, or raise maxPods in the configuration of its kubelet.",
    )
    VOLUME = (
        "VolumeBinding",
        "Node",
        "A volume of the pod is not available on the node, because of the node affinity of its PersistentVolume.",
        "Place the pod where its volume is.",
    )
    SPREAD = (
        "PodTopologySpread",
        "Node",
        "The pod would be spread more unevenly than its topology spread constraints allow.",
        "Raise maxSkew, or make room where fewer of these pods run.",
    )
    POD_AFFINITY = (
        "InterPodAffinity",
        "Node",
        "No pod that the pod's affinity requires runs in the same topology domain.",
        "Change the affinity, or place those pods first.",
    )
    POD_ANTI_AFFINITY = (
        "InterPodAntiAffinity",
        "Node",
        "A pod in the same topology domain is excluded by the pod's anti-affinity, or by its own.",
        "Change the anti-affinity, or wait until that pod ends.",
    )
    NOT_ASKED = (
        "NotAsked",
        "Node",
        "With a decision log: kube-scheduler did not ask Purser about the node, because its own filters rejected it.",
        "Ask the cluster or a dump of its objects instead: a decision log does not have the results of other filters.",
    )

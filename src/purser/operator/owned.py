"""Kinds of objects that the operator makes, and where the API serves them; in the order in which they are applied."""

from purser.kube.resources import untyped

CONFIG_MAPS = untyped("", "v1", "configmaps", "ConfigMap")
RUNTIME_CLASSES = untyped("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
SERVICE_MONITORS = untyped("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor")

OWNED = (
    untyped("", "v1", "serviceaccounts", "ServiceAccount"),
    untyped("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    untyped("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
    untyped("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    untyped("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    CONFIG_MAPS,
    RUNTIME_CLASSES,
    untyped("", "v1", "services", "Service"),
    untyped("apps", "v1", "daemonsets", "DaemonSet"),
)
"""Those that every API server since 1.20 serves.

A Namespace is not among them on purpose: what is owned is removed when it is no longer wanted.
"""

MONITORS = (SERVICE_MONITORS, untyped("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule"))
"""Those of the Prometheus operator, where its definitions are installed."""

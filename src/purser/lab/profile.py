"""kube-scheduler's configuration for Purser, as in deploy/helm/purser: for the stand-in, and as the real one's file."""

from typing import Any

from purser.core.dialects.managed import ignored_resources, managed_resources
from purser.core.names import SCHEDULER_NAME
from purser.lab.controllers.scheduling.extender import ExtenderSettings


def extender(port: int, managed: tuple[str, ...] = ()) -> ExtenderSettings:
    """Purser's extender on a port of the loopback address. ``managed``: names beside those that Purser knows."""
    return ExtenderSettings(
        url_prefix=f"https://127.0.0.1:{port}",
        filter_verb="filter",
        prioritize_verb="prioritize",
        bind_verb="bind",
        preempt_verb="preempt",
        timeout_s=10.0,
        # A pod that bypassed the webhook requests amounts alone: kube-scheduler must not place it by its own count.
        managed_resources=(*managed_resources(), *managed),
        ignored_resources=tuple(each for found in ignored_resources().values() for each in found),
    )


def configuration(port: int, managed: tuple[str, ...] = ()) -> dict[str, Any]:
    """The same as fields of KubeSchedulerConfiguration."""
    settings = extender(port, managed)
    entry = {
        "urlPrefix": settings.url_prefix,
        "filterVerb": settings.filter_verb,
        "prioritizeVerb": settings.prioritize_verb,
        "bindVerb": settings.bind_verb,
        "preemptVerb": settings.preempt_verb,
        "weight": settings.weight,
        "enableHTTPS": True,
        # Loopback, and the certificate is Purser's own and rotates.
        "tlsConfig": {"insecure": True},
        "httpTimeout": f"{settings.timeout_s:g}s",
        "nodeCacheCapable": True,
        "ignorable": settings.is_ignorable,
        "managedResources": [
            *({"name": name} for name in settings.managed_resources),
            *({"name": name, "ignoredByScheduler": True} for name in settings.ignored_resources),
        ],
    }
    # kube-scheduler samples nodes before it asks extenders; a sample may miss the one node that fits.
    profiles = [{"schedulerName": SCHEDULER_NAME}]
    return {"percentageOfNodesToScore": 100, "profiles": profiles, "extenders": [entry]}

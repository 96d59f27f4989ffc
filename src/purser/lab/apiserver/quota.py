"""ResourceQuotas over pods: what a pod uses, which quotas it counts in, and which of them do not hold it. Pure.

Counted are the resources that kube-apiserver's evaluator of pods counts. Others, as `limits.nvidia.com/gpumem`,
`services` or `count/jobs.batch`, are left to whoever writes them into the status. The scope CrossNamespacePodAffinity
matches no pod. Source of the rules and of the sentences: k8s.io/apiserver, pkg/admission/plugin/resourcequota, and
k8s.io/kubernetes, pkg/quota/v1/evaluator/core/pods.go and pkg/controller/resourcequota.
"""

from collections.abc import Iterable, Iterator

from purser.kube.pods import TERMINAL_PHASES

from . import amounts, pods, quantity
from .amounts import Amounts
from .errors import Obj
from .selectors import object_selector

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_REQUESTS = "requests."
_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
_COUNT = "count/pods"
_COUNTED_NAMES = (_COUNT, "pods", *(f"{kind}{name}" for kind in ("", _REQUESTS, "limits.") for name in _COMPUTE))
_MUST_BE_SPECIFIED = tuple(f"{kind}{name}" for kind in ("", "limits.", _REQUESTS) for name in ("cpu", "memory"))
"""A quota over one of these wants every container to say it."""


def is_counted(name: str) -> bool:
    """Whether pods count in a line of `spec.hard`."""
    bare = name.removeprefix(_REQUESTS)
    of_devices = bare != name and (amounts.is_extended(bare) or bare.startswith(_DEVICE_CLASS))
    return name in _COUNTED_NAMES or amounts.is_huge_pages(bare) or of_devices


def usage(pod: Obj) -> dict[str, str]:
    """All that a pod counts for. One that has ended is still an object, and nothing more.

    Unlike in Kubernetes, a pod that outlasts its grace period counts until it is gone.
    """
    if (pod.get("status") or {}).get("phase") in TERMINAL_PHASES:
        return {_COUNT: "1"}
    spec = pod["spec"]
    overhead = spec.get("overhead") or {}
    requests, limits = amounts.of_pod(spec, "requests"), amounts.of_pod(spec, "limits")
    limited = {name: amount for name, amount in overhead.items() if amounts.exceeds(limits.get(name, "0"), "0")}
    return {_COUNT: "1", **_compute(amounts.add(requests, overhead), amounts.add(limits, limited))}


def _compute(requests: Amounts, limits: Amounts) -> dict[str, str]:
    found = {"pods": "1"}
    for name, amount in requests.items():
        if name in _COMPUTE or amounts.is_huge_pages(name):
            found |= {name: amount, f"{_REQUESTS}{name}": amount}
        elif amounts.is_extended(name) or name.startswith(_DEVICE_CLASS):
            found[f"{_REQUESTS}{name}"] = amount
    return found | {f"limits.{name}": amount for name, amount in limits.items() if name in _COMPUTE}


def matches(quota: Obj, pod: Obj) -> bool:
    """Whether a pod is in all scopes of a quota."""
    return all(_in_scope(scope, pod["spec"]) for scope in _quota_scopes(quota.get("spec") or {}))


def _quota_scopes(spec: Obj) -> Iterator[Obj]:
    yield from ({"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ())
    yield from (spec.get("scopeSelector") or {}).get("matchExpressions") or ()


def _in_scope(scope: Obj, spec: Obj) -> bool:
    name = scope.get("scopeName", "")
    if name in ("Terminating", "NotTerminating"):
        ends: bool = spec.get("activeDeadlineSeconds") is not None
        return ends is (name == "Terminating")
    if name in ("BestEffort", "NotBestEffort"):
        has_no_requests: bool = pods.qos_class(spec) == "BestEffort"
        return has_no_requests is (name == "BestEffort")
    if name != "PriorityClass":
        return False
    term = {"key": name, "operator": scope.get("operator"), "values": scope.get("values") or []}
    given = spec.get("priorityClassName")
    return object_selector({"matchExpressions": [term]}).matches({name: given} if given else {})


def missing_amounts(quota: Obj, pod: Obj) -> str:
    """What containers must say in a quota's namespace and do not; empty where they say all."""
    spec = pod["spec"]
    if any(amounts.is_pod_level(name) for kind in ("requests", "limits") for name in amounts.of_container(spec, kind)):
        return ""
    wanted = sorted(name for name in hard_limits(quota) if name in _MUST_BE_SPECIFIED)
    said = {
        container.get("name", ""): _compute(*(amounts.of_container(container, kind) for kind in ("requests", "limits")))
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    }
    missing = {name: sorted(container for container in said if name not in said[container]) for name in wanted}
    texts = [f"{name} for: {','.join(containers)}" for name, containers in missing.items() if containers]
    return f"must specify {'; '.join(texts)}" if texts else ""


def exceeded(quota: Obj, asked: Amounts) -> str:
    """Why a quota does not hold what is asked beside what is used; empty where it does."""
    hard, used = quota["status"]["hard"], quota["status"]["used"]
    asked = {name: asked[name] for name in sorted(hard) if is_counted(name) and quantity.parse(asked.get(name, "0"))}
    over = [name for name in asked if amounts.exceeds(quantity.added(used[name], asked[name]), hard[name])]
    texts = (
        f"{word}: {','.join(f'{name}={of[name]}' for name in over)}"
        for word, of in (("requested", asked), ("used", used), ("limited", hard))
    )
    return f"exceeded quota: {quota['metadata']['name']}, {', '.join(texts)}" if over else ""


def hard_limits(quota: Obj) -> dict[str, str]:
    """The limits of a quota."""
    return (quota.get("spec") or {}).get("hard") or {}


def status(quota: Obj, here: Iterable[Obj]) -> Obj:
    """A quota's status. ``here``: all pods of its namespace. Entries that are not counted stay as they are."""
    hard = hard_limits(quota)
    known = (quota.get("status") or {}).get("used") or {}
    kept = {name: amount for name, amount in known.items() if name in hard and not is_counted(name)}
    used: dict[str, str] = dict.fromkeys(filter(is_counted, hard), "0")
    for pod in here:
        used = amounts.add(used, _counted_usage(quota, pod))
    return {"hard": hard, "used": {**kept, **used}}


def moved(quota: Obj, before: Obj | None, after: Obj | None) -> dict[str, str]:
    """A quota's `status.used` once a pod has changed. None: not there."""
    used: dict[str, str] = quota["status"]["used"]
    less, more = (_counted_usage(quota, pod) if pod else {} for pod in (before, after))
    return used if less == more else amounts.add(amounts.subtract(used, less), more)


def _counted_usage(quota: Obj, pod: Obj) -> dict[str, str]:
    if not matches(quota, pod):
        return {}
    hard = hard_limits(quota)
    return {name: amount for name, amount in usage(pod).items() if name in hard}


def standing(quota: Obj) -> Obj:
    """What a quota's status depends on, and what of it the API server writes."""
    known = quota.get("status") or {}
    used = {name: amount for name, amount in (known.get("used") or {}).items() if is_counted(name)}
    return {"spec": quota.get("spec"), "hard": known.get("hard"), "used": used}

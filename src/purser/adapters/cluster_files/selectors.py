"""Labels, and what asks for them: node selectors, affinities, spread constraints, taints."""

from collections.abc import Iterator, Mapping
from typing import Any

from purser.adapters.cluster_files.pseudonyms import NameKind, Pseudonyms
from purser.core.dialects.gpushare import GPU_COUNT

Found = tuple[NameKind, str]
"""A name, and what it is of."""

_KNOWN_DOMAINS = (
    "kubernetes.io",
    "k8s.io",
    "nvidia.com",
    "purser.dev",
    "hami.io",
    "volcano.sh",
    "amd.com",
    "intel.com",
)
"""Whose labels and taints say nothing of who runs the cluster."""

_DESCRIPTIVE_DOMAINS = ("nvidia.com", "purser.dev", "hami.io", "feature.node.kubernetes.io")
"""Whose values are words, too: models, modes, profiles. Not Volcano's: on pods they are names of jobs and queues."""

_ROLES = "node-role.kubernetes.io"
"""Whose keys people make up, but for these."""
_KNOWN_ROLES = frozenset({"control-plane", "master", "worker", "etcd", "infra", "gpu"})

_DESCRIPTIVE_KEYS = frozenset(
    {
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        GPU_COUNT,
    }
)
_NAMES_OF = {
    "kubernetes.io/hostname": NameKind.NODE,
    "kubernetes.io/metadata.name": NameKind.NAMESPACE,
    "metadata.name": NameKind.NODE,
}
"""Keys, and a field, whose values are names of objects."""

_TAINT_WORDS = frozenset({"", "true", "false", "present", "yes", "no"})
_NUMERIC_OPERATORS = frozenset({"Gt", "Lt"})


class SelectorNames:
    """Finds the names in what selects, and replaces them."""

    def __init__(self, kept: frozenset[str] = frozenset()) -> None:
        """``kept``: keys whose values stay, because an affinity compares them as numbers (`numeric_keys`)."""
        self._kept = kept

    def labels(self, labels: Mapping[str, str]) -> Iterator[Found]:
        """Of labels or a selector of them."""
        for key, value in labels.items():
            yield from self._key(key)
            yield from self.value(key, value)

    def value(self, key: str, value: str) -> Iterator[Found]:
        """Of a label's value."""
        if key in _NAMES_OF:
            yield _NAMES_OF[key], value
        elif not self._is_kept_as_is(key):
            yield NameKind.VALUE, value

    def _key(self, key: str) -> Iterator[Found]:
        if not is_known(key):
            yield NameKind.LABEL, key

    def taint(self, key: str, value: str) -> Iterator[Found]:
        """Of a taint or toleration."""
        yield from self._key(key)
        yield from self._taint_value(key, value)

    def _taint_value(self, key: str, value: str) -> Iterator[Found]:
        """People write what they like, also for a vendor's key: who may use ``nvidia.com/gpu``."""
        if value not in _TAINT_WORDS:
            yield _NAMES_OF.get(key, NameKind.VALUE), value

    def replaced_taint_value(self, key: str, value: str, given: Pseudonyms) -> str:
        """The value of a taint or toleration."""
        return next((given.of(kind, each) for kind, each in self._taint_value(key, value)), value)

    def replaced_selector(self, found: Any) -> Iterator[Found]:
        """Of an affinity, spread constraints or the like, as they came."""
        if isinstance(found, list):
            for each in found:
                yield from self.replaced_selector(each)
        if not isinstance(found, dict):
            return
        if isinstance(key := found.get("key"), str) and "operator" in found:
            yield from self._key(key)
            values = found.get("values")
            for value in values if isinstance(values, list) else ():
                yield from self.value(key, str(value))
            return
        for name, each in found.items():
            if name == "matchLabels" and isinstance(each, dict):
                yield from self.labels({key: str(value) for key, value in each.items()})
            elif name == "topologyKey" and isinstance(each, str):
                yield from self._key(each)
            elif name in ("matchLabelKeys", "mismatchLabelKeys") and isinstance(each, list):
                for key in each:
                    yield from self._key(str(key))
            elif name == "namespaces" and isinstance(each, list):
                yield from ((NameKind.NAMESPACE, str(namespace)) for namespace in each)
            else:
                yield from self.replaced_selector(each)

    def replaced_labels(self, labels: Mapping[str, str], given: Pseudonyms) -> dict[str, str]:
        """Labels, or a selector of them."""
        return {key_of(key, given): self.replaced_value(key, value, given) for key, value in labels.items()}

    def replaced_value(self, key: str, value: str, given: Pseudonyms) -> str:
        """The value of a label."""
        kind = next((kind for kind, _ in self.value(key, value)), None)
        return value if kind is None else given.of(kind, value)

    def replaced(self, found: Any, given: Pseudonyms) -> Any:
        """An affinity, spread constraints or the like."""
        if isinstance(found, list):
            return [self.replaced(each, given) for each in found]
        if not isinstance(found, dict):
            return found
        if isinstance(key := found.get("key"), str) and "operator" in found:
            values = found.get("values")
            values_field = {"values": [self.replaced_value(key, str(each), given) for each in values]} if values else {}
            return {"key": key_of(key, given), "operator": found["operator"], **values_field}
        return {name: self._replaced_field(name, each, given) for name, each in found.items()}

    def _replaced_field(self, name: str, found: Any, given: Pseudonyms) -> Any:
        if name == "matchLabels" and isinstance(found, dict):
            return self.replaced_labels({key: str(value) for key, value in found.items()}, given)
        if name == "topologyKey" and isinstance(found, str):
            return key_of(found, given)
        if name in ("matchLabelKeys", "mismatchLabelKeys") and isinstance(found, list):
            return [key_of(str(key), given) for key in found]
        if name == "namespaces" and isinstance(found, list):
            return [given.of(NameKind.NAMESPACE, str(each)) for each in found]
        return self.replaced(found, given)

    def _is_kept_as_is(self, key: str) -> bool:
        return key in self._kept or key in _DESCRIPTIVE_KEYS or _is_in_domains(key, _DESCRIPTIVE_DOMAINS)


def numeric_keys(found: Any) -> Iterator[str]:
    """The keys that an affinity compares as numbers."""
    if isinstance(found, list):
        for each in found:
            yield from numeric_keys(each)
    elif isinstance(found, dict):
        if found.get("operator") in _NUMERIC_OPERATORS and isinstance(found.get("key"), str):
            yield found["key"]
        for each in found.values():
            yield from numeric_keys(each)


def is_known(key: str) -> bool:
    """Whether a label's or taint's key stays as it is."""
    domain, _, name = key.partition("/")
    if domain == _ROLES:
        return name in _KNOWN_ROLES
    return not key or _is_in_domains(key, _KNOWN_DOMAINS) or key in (*_NAMES_OF, GPU_COUNT, "pod-template-hash")


def key_of(key: str, given: Pseudonyms) -> str:
    """A key, or its pseudonym."""
    return key if is_known(key) else given.of(NameKind.LABEL, key)


def _is_in_domains(key: str, domains: tuple[str, ...]) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and any(domain == each or domain.endswith(f".{each}") for each in domains)

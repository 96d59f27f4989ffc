"""What the state says of quotas: each limit once, in the units of its own ResourceQuota."""

import msgspec

from purser.adapters.quotas import Quotas
from purser.core.grant.quota import Demand
from purser.core.state import StateQuota
from purser.kube.objects import ObjectMeta
from purser.kube.resource_quotas import ResourceQuota, ResourceQuotaSpec

MEMORY, CORES = "limits.nvidia.com/gpumem", "limits.nvidia.com/gpucores"
ILUVATAR = "iluvatar.ai/MR-V100-vgpu"
USED = {"": Demand(5000, 130), ILUVATAR: Demand(1000, 30)}


def quotas(*given: ResourceQuota) -> Quotas:
    found = Quotas()
    for each in given:
        found.put(each)
    return found


def quota(name: str, hard: dict[str, str | int], namespace: str = "a") -> ResourceQuota:
    return ResourceQuota(ObjectMeta(name=name, namespace=namespace), ResourceQuotaSpec(dict(hard)))


def documents(known: Quotas, namespace: str = "a") -> list[StateQuota]:
    return list(known.documents(namespace, lambda family: USED.get(family, Demand())))


def test_each_limit_of_each_quota_is_told_in_its_own_units():
    given = quotas(
        quota("z", {MEMORY: "8k", CORES: "100", "pods": "3"}),
        quota("b", {MEMORY: 0, "limits.iluvatar.ai/MR-V100.vMem": "7", "limits.iluvatar.ai/MR-V100.vCore": "33"}),
        quota("other", {MEMORY: 1}, namespace="other"),
        quota("of-kubernetes", {"pods": "3"}, namespace="plain"),
    )
    assert documents(given) == [
        StateQuota("a", "b", "limits.iluvatar.ai/MR-V100.vCore", ILUVATAR, 30, 33),
        StateQuota("a", "b", "limits.iluvatar.ai/MR-V100.vMem", ILUVATAR, 4, 7),
        StateQuota("a", "b", MEMORY, "", 5000, 0),
        StateQuota("a", "z", CORES, "", 130, 100),
        StateQuota("a", "z", MEMORY, "", 5000, 8000),
    ]
    assert set(given.namespaces) == {"a", "other"}
    assert documents(given, "plain") == documents(given, "nobody") == []


def test_a_limit_that_is_no_amount_is_none_and_one_that_goes_is_told_no_more():
    given = quotas(quota("q", {MEMORY: "many", CORES: "50"}))
    assert [each.resource for each in documents(given)] == [CORES]
    given.put(quota("q", {"pods": "1"}))
    assert (documents(given), list(given.namespaces)) == ([], [])


def test_amounts_that_no_document_could_have_are_cut_to_the_largest_of_kubernetes():
    given = quotas(quota("q", {MEMORY: "1E400", "limits.iluvatar.ai/MR-V100.vMem": "9" * 60}))
    found = documents(given)
    assert [each.limit for each in found] == [2**63 - 1] * 2
    assert msgspec.json.decode(msgspec.json.encode(found), type=list[StateQuota]) == found

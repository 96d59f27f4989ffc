"""Pods with ResourceClaims: what kube-scheduler's plugin DynamicResources (1.37) objects to, and in what order."""

import msgspec
import pytest
from tests.unit.kube.servers import api_server, refuse
from tests.unit.scheduler.explained import Raw, cluster, gpu, gpus, node, pod

from purser.adapters.cluster_files import anonymize_objects, encode_objects, trim_objects
from purser.adapters.objects import objects_of_dump, read_objects
from purser.kube.device_claims import DEVICE_CLASSES, RESOURCE_CLAIMS
from purser.kube.pod_details import SCHEDULED_PODS
from purser.scheduler.explaining import Explainer

API = {"apiVersion": "resource.k8s.io/v1"}
CLASS = {**API, "kind": "DeviceClass", "metadata": {"name": "nics"}}
NOT_CHECKED = "Purser does not check which nodes have devices for it"


def claim(name: str = "fast", *, where: Raw | None = None, of: str = "", **facts: object) -> Raw:
    """``where`` it is allocated; ``of`` a pod, for which it was made."""
    owner = {"kind": "Pod", "name": of, "uid": f"uid-{of}", "controller": True}
    made: Raw = {
        **API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": [owner] if of else [], **facts},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "nics"}}]}},
    }
    if where is not None:
        made["status"] = {"allocation": {"nodeSelector": where, "devices": {}}}
    return made


def on(name: str) -> Raw:
    expression = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {"nodeSelectorTerms": [{"matchFields": [expression]}]}


def waiting(made: str | None = None, *, template: str = "", **claimed: object) -> Raw:
    """A pod that names ResourceClaim ``fast``, or of a template the one that was ``made``."""
    named = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": "fast"}
    found = pod("p", gpu(9), resourceClaims=[{"name": "nic", **named, **claimed}])
    found["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    if made is not None:
        found["status"]["resourceClaimStatuses"] = [{"name": "nic", "resourceClaimName": made}]
    return found


def nodes() -> list[Raw]:
    return [node(name, gpus(name, 1)) for name in "ab"]


def explained(*objects: Raw):
    return Explainer(cluster(*nodes(), *objects)).explain("default", "p")


@pytest.mark.parametrize(
    ("objects", "objection"),
    [
        ((waiting(), claim("other"), CLASS), "ResourceClaim fast does not exist"),
        ((waiting(), claim(deletionTimestamp="2026-01-01T00:00:00Z"), CLASS), "ResourceClaim fast is being deleted"),
        (
            (waiting(), claim(), {**CLASS, "metadata": {"name": "others"}}),
            "DeviceClass nics of ResourceClaim fast does not exist",
        ),
        (
            (waiting(template="t"), claim("other"), CLASS),
            "the ResourceClaim for its claim nic has not been created from ResourceClaimTemplate t yet",
        ),
        (
            (waiting("made", template="t"), claim("made", of="q"), CLASS),
            "ResourceClaim made was created for another pod",
        ),
        ((waiting("made", template="t"), claim("made", of="p"), CLASS), ""),
        ((waiting("", template="t"), claim("other"), CLASS), ""),
        ((waiting(), claim(where=on("b"))), ""),
    ],
)
def test_what_keeps_a_pod_from_all_nodes(objects: tuple[Raw, ...], objection: str):
    found = explained(*objects)
    assert (found.objection, found.fits == ()) == (objection, bool(objection))


def test_of_a_request_with_alternatives_each_class_has_to_exist():
    made = claim()
    ways = [{"name": name, "deviceClassName": name} for name in ("nics", "others")]
    made["spec"]["devices"]["requests"] = [{"name": "r", "firstAvailable": ways}]
    assert explained(waiting(), made, CLASS).objection == "DeviceClass others of ResourceClaim fast does not exist"


def test_an_allocated_claim_keeps_the_pod_where_its_devices_are():
    found = explained(waiting(), claim(where=on("b")), CLASS)
    assert (found.fits, found.notes) == (("b",), ())
    (reason,) = found.reasons
    assert (reason.by, reason.reason, reason.examples) == ("kube-scheduler", "DynamicResources", ("a",))
    assert reason.text == "1 node cannot use the devices allocated to ResourceClaim fast"
    everywhere = claim(where=on("b"))
    del everywhere["status"]["allocation"]["nodeSelector"]
    assert explained(waiting(), everywhere, CLASS).fits == ("a", "b")


def test_pods_that_would_have_to_end_are_looked_for_only_where_the_devices_are():
    full = [pod(f"on-{name}", gpu(), on=name, share={f"{name}-0": 16384}) for name in "ab"]
    found = explained(waiting(), claim(where=on("b")), CLASS, *full)
    ended = [each for each in found.suggestions if "is deleted" in each.text]
    assert [(each.text, each.examples) for each in ended] == [("pod default/on-b is deleted", ("b",))]


def test_what_is_not_known_of_claims_is_said():
    assert explained(waiting()).notes == (
        "The pod has resource claims (DRA). ResourceClaims were not read, so Purser does not check them",
    )
    assert explained(waiting(), claim(), CLASS).notes == (f"ResourceClaim fast is not allocated yet. {NOT_CHECKED}",)
    two = waiting()
    two["spec"]["resourceClaims"].append({"name": "other", "resourceClaimName": "slow"})
    assert explained(two, claim(), claim("slow"), CLASS).notes == (
        "ResourceClaims fast, slow are not allocated yet. Purser does not check which nodes have devices for them",
    )
    assert explained(pod("p", gpu(9)), claim(), CLASS).notes == ()


def test_a_snapshot_has_the_claims_and_an_anonymized_one_none_of_their_names():
    names = {"fast": "zebrafast", "nics": "zebranics", "nic": "zebranic", "t": "zebrat"}
    asked = waiting("zebrafast", template=names["t"])
    asked["spec"]["resourceClaims"][0]["name"] = asked["status"]["resourceClaimStatuses"][0]["name"] = names["nic"]
    made = claim("zebrafast", of="p", where=on("b"))
    made["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = names["nics"]
    objects = cluster(*nodes(), asked, made, {**CLASS, "metadata": {"name": names["nics"]}})
    read = objects_of_dump(encode_objects(trim_objects(objects)))
    assert (read.resource_claims, read.device_classes) == (objects.resource_claims, objects.device_classes)
    hidden, given = anonymize_objects(read)
    file = encode_objects(hidden)
    assert b"zebra" not in file
    found = Explainer(objects_of_dump(file)).explain(hidden.pods[0].metadata.namespace, hidden.pods[0].metadata.name)
    assert [given.originals()[name] for name in found.fits] == ["b"]


def test_a_snapshot_says_that_there_are_no_claims():
    none = msgspec.structs.replace(cluster(*nodes(), waiting()), resource_claims=(), device_classes=())
    read = objects_of_dump(encode_objects(none))
    assert (read.resource_claims, read.device_classes, read.problems) == ((), (), ())
    assert Explainer(read).explain("default", "p").objection == "ResourceClaim fast does not exist"


async def test_claims_are_read_where_a_pod_names_one(tmp_path):
    async with api_server(tmp_path / "kubeconfig", tls=False) as (_, client):
        before = await read_objects(client)
        assert (before.resource_claims, before.device_classes) == (None, None)
        assert (await read_objects(client, (RESOURCE_CLAIMS, DEVICE_CLASSES))).resource_claims == ()
        await client.create(SCHEDULED_PODS, {"apiVersion": "v1", **waiting()})
        after = await read_objects(client)
        assert (after.resource_claims, after.device_classes) == ((), ())


@pytest.mark.parametrize("code", [403, 404])
async def test_a_cluster_without_claims_and_one_that_hides_them_are_explained_all_the_same(tmp_path, code):
    async def hide(request):
        return refuse(code, {403: "Forbidden", 404: "NotFound"}[code]) if "resource.k8s.io" in request.path else None

    async with api_server(tmp_path / "kubeconfig", tls=False) as (api, client):
        await client.create(SCHEDULED_PODS, {"apiVersion": "v1", **waiting()})
        api.intercept(hide)
        found = await read_objects(client)
        assert (found.resource_claims, found.device_classes) == (None, None)
        hidden = [each.partition(":")[0] for each in found.problems]
        assert hidden == [
            f"{plural} are skipped because you are not allowed to read them"
            for plural in (("resourceclaims", "deviceclasses") if code == 403 else ())
        ]

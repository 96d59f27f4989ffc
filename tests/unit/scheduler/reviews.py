"""AdmissionReviews and JSON patches for the tests of the webhooks."""

import base64
import copy
import json

from purser.scheduler.webhook.review import decode_review, encode_review


def review(
    obj,
    *,
    old=None,
    operation="CREATE",
    subresource="",
    user="alice",
    namespace="team",
    resource="pods",
    uid="r-1",
    groups=("system:authenticated",),
):
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": resource},
            "subResource": subresource,
            "namespace": namespace,
            "operation": operation,
            "userInfo": {"username": user, "groups": list(groups)},
            "object": obj,
            "oldObject": old,
            "dryRun": False,
        },
    }


def ask(webhook, obj, **fields):
    request = decode_review(json.dumps(review(obj, **fields)).encode())
    answer = json.loads(encode_review(request, webhook.review(request)))
    assert answer["apiVersion"] == "admission.k8s.io/v1"
    assert answer["response"]["uid"] == "r-1"
    return answer["response"]


def pod(*containers, init=(), annotations=None, **spec):
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "job-", "creationTimestamp": None, "annotations": annotations or {}},
        "spec": {"containers": list(containers), **spec},
        "status": {},
    }
    if init:
        body["spec"]["initContainers"] = list(init)
    return body


def container(name="train", *, privileged=None, limits=None, requests=None, **fields):
    body = {"name": name, "image": "cuda", **fields}
    if limits is not None or requests is not None:
        body["resources"] = {k: v for k, v in (("limits", limits), ("requests", requests)) if v is not None}
    if privileged is not None:
        body["securityContext"] = {"privileged": privileged}
    return body


def patched(obj, response):
    """The object after the response's JSON patch; only ``add`` and ``remove`` in objects are ever sent."""
    if "patch" not in response:
        return obj
    assert response["patchType"] == "JSONPatch"
    result = copy.deepcopy(obj)
    for operation in json.loads(base64.b64decode(response["patch"])):
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target = result
        for part in path:
            target = target[int(part)] if isinstance(target, list) else target[part]
        if operation["op"] == "remove":
            del target[last]
        else:
            assert operation["op"] == "add"
            target[last] = operation["value"]
    return result

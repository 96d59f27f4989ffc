"""What clients read first: version, groups, resources, health."""

import json

from .client import Api


async def test_health_is_plain_ok(api: Api) -> None:
    for path in ("/healthz", "/readyz", "/livez"):
        answer = await api.get(path)
        assert (answer.status, answer.body) == (200, "ok")


async def test_version_names_major_and_minor(api: Api) -> None:
    body = (await api.get("/version")).ok().body
    assert body["major"] == "1"
    assert body["gitVersion"].startswith(f"v1.{api.minor}.")


async def test_core_group_is_called_v1_without_a_slash(api: Api) -> None:
    assert (await api.get("/api")).body["versions"] == ["v1"]
    body = (await api.get("/api/v1")).body
    assert (body["kind"], body["groupVersion"]) == ("APIResourceList", "v1")


async def test_pods_are_described_with_verbs_and_short_name(api: Api) -> None:
    resources = {each["name"]: each for each in (await api.get("/api/v1")).body["resources"]}
    pods = resources["pods"]
    assert (pods["kind"], pods["namespaced"], pods["shortNames"]) == ("Pod", True, ["po"])
    assert {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} <= set(pods["verbs"])
    assert "pods/binding" in resources and resources["pods/status"]["kind"] == "Pod"
    assert resources["pods/eviction"]["kind"] == "Eviction"
    assert resources["nodes"]["namespaced"] is False


async def test_groups_name_their_preferred_version(api: Api) -> None:
    groups = {each["name"]: each for each in (await api.get("/apis")).body["groups"]}
    assert groups["apps"]["preferredVersion"] == {"groupVersion": "apps/v1", "version": "v1"}
    builtin = "coordination.k8s.io apiextensions.k8s.io admissionregistration.k8s.io events.k8s.io policy"
    builtin += " rbac.authorization.k8s.io scheduling.k8s.io node.k8s.io storage.k8s.io"
    assert set(builtin.split()) <= groups.keys()
    assert (await api.get("/apis/apps")).body["kind"] == "APIGroup"


async def test_scale_is_a_subresource_of_another_group(api: Api) -> None:
    resources = {each["name"]: each for each in (await api.get("/apis/apps/v1")).body["resources"]}
    scale = resources["deployments/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")


async def test_unknown_paths_are_not_found(api: Api) -> None:
    for path in ("/apis/nowhere.dev/v1/things", "/api/v1/nothings"):
        answer = await api.get(path)
        assert answer.status == 404


async def test_a_wrong_token_is_unauthorized(api: Api) -> None:
    answer = await api.request("GET", "/api/v1/pods", token="wrong")
    assert (answer.status, answer.reason, answer.message) == (401, "Unauthorized", "Unauthorized")


async def test_access_reviews_are_answered(api: Api) -> None:
    attributes = {"verb": "create", "resource": "pods", "namespace": "default"}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
              "spec": {"resourceAttributes": attributes}}  # fmt: skip
    answer = await api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert answer.status == 201
    assert answer.body["status"]["allowed"] is True


async def test_token_reviews_name_the_user(api: Api) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": api.token}}
    answer = await api.post("/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert answer.body["status"]["authenticated"] is True
    assert "system:masters" in answer.body["status"]["user"]["groups"]
    review["spec"] = {"token": "wrong"}
    answer = await api.post("/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert not answer.body["status"].get("authenticated")


async def test_openapi_v3_says_that_the_server_validates_fields(api: Api) -> None:
    if api.minor < 27:
        return
    asked = {"Accept": "application/json"}  # newer servers answer others in protobuf
    listed = (await api.request("GET", "/openapi/v3", headers=asked)).ok().body
    index = (json.loads(listed) if isinstance(listed, str) else listed)["paths"]  # called text/plain by some
    assert {"api/v1", "apis/apps/v1"} <= index.keys()
    document = (await api.request("GET", index["apis/apps/v1"]["serverRelativeURL"], headers=asked)).ok().body
    patch = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert "fieldValidation" in {parameter["name"] for parameter in patch["parameters"]}
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Deployment"


async def test_openapi_v2_comes_as_protobuf_under_a_legal_media_type(api: Api) -> None:
    asked = {"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    async with api.raw("/openapi/v2", asked) as response:
        data = await response.read()
    assert response.status == 200
    assert data.startswith(b"\x0a\x032.0"), "field 1 is the version of the format"
    if api.minor >= 27:
        assert "@" not in response.headers["Content-Type"]

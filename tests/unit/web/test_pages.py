"""Each page over HTTP: what it shows, what it escapes, and who may ask."""

import asyncio
from urllib.parse import quote

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.unit.top.states import cluster, details, gpu, grant, node, waiting
from tests.waiting import limit as waiting_limit

from purser.core.state import (
    ADVICE,
    MAX_LINKED_GPUS,
    NodeDetails,
    StateEvent,
    StateGpuHealth,
    StateReason,
    StateReplica,
    StateStep,
)
from purser.kube import KubeError
from purser.web import pages
from purser.web.access import is_local_host
from purser.web.pages import NODES_PER_PAGE
from purser.web.tables import MAX_PODS_OF_A_REASON

from .pages import Source, served


def unlinked(count):
    return (msgspec.structs.replace(each, links=()) for each in details("n", count).gpus)


async def text_of(client, path, status=200):
    async with client.get(path) as response:
        text = await response.text()
        assert response.status == status, text
        return text


@pytest.mark.parametrize(
    ("path", "shows"),
    [
        ("/", ["<canvas"]),
        ("/nodes", ["2 of 2 nodes", "/nodes/other", "Tesla T4", "0.1 GiB of 2.0 GiB"]),
        ("/nodes/n", ["GPUs of n", "default/holder", "kubectl describe node n"]),
        ("/gpus/GPU-0", ["GPU 0 of", "default/holder", "purser cordon gpu n GPU-0"]),
        ("/pods/default/holder", ["running", "/gpus/GPU-0", "the reason", '"/nodes" aria-current']),
        ("/pods/default/big", ["CardInsufficientMemory", "the reason", '"/waiting" aria-current']),
        ("/waiting", ["2 pods ask for GPUs", "CardInsufficientMemory", "/pods/default/large"]),
        ("/use", ["default", "Tesla T4"]),
        ("/operator", ["no ClusterPolicy", "kubectl describe pcp"]),
    ],
)
async def test_page(path, shows):
    async with served() as (client, _):
        text = await text_of(client, path)
        assert [each for each in shows if each not in text] == []
        assert text.count('aria-current="page"') == 1


async def test_a_pod_on_a_sick_gpu_is_told_so_on_its_page():
    sick = msgspec.structs.replace(gpu(0, held=100, health=StateGpuHealth.UNHEALTHY), reason="Xid 79")
    async with served(Source(cluster((node("n", sick, gpu(1)),), (grant("holder"),)))) as (client, _):
        assert "which is unhealthy: Xid 79" in await text_of(client, "/pods/default/holder")


async def test_a_pod_that_nothing_more_is_known_of_shows_its_reasons():
    source = Source()
    source.lines = []
    async with served(source) as (client, _):
        text = await text_of(client, "/pods/default/big")
        assert "2 GPUs are too small" in text and "Said by" in text and "with a kubeconfig" in text


@pytest.mark.parametrize("path", ["/nodes/gone", "/gpus/gone", "/pods/default/gone", "/nothing", "/pods/a"])
async def test_what_is_not_there_is_a_page_that_says_so(path):
    async with served() as (client, _):
        assert "<h1>Not found</h1>" in await text_of(client, path, 404)


async def test_before_the_cluster_is_read_pages_say_so_and_the_server_is_not_ready(monkeypatch):
    monkeypatch.setattr(pages, "_FIRST_STATE_TIMEOUT_S", 0.01)
    async with served(Source(None)) as (client, _):
        assert "still reading the cluster" in await text_of(client, "/nodes", 503)
        assert "<canvas" in await text_of(client, "/")
        assert await text_of(client, "/readyz", 503) == "the cluster has not been read yet\n"
        assert await text_of(client, "/healthz") == "ok\n"


async def test_an_error_on_a_page_is_its_own_alone():
    source = Source()
    source.details = None
    with capture_logs() as logs:
        async with served(source) as (client, _):
            assert "Error in Purser" in await text_of(client, "/pods/default/big", 500)
            assert "big" in await text_of(client, "/waiting")
    assert [each["event"] for each in logs] == ["Failed to build a page"]


async def test_a_pod_shows_its_steps_where_they_are_known():
    source = Source()
    async with served(source) as (client, _):
        assert "Steps" not in await text_of(client, "/pods/default/holder")
        created = StateStep("Created", "2027-01-15T08:00:00Z", 0)
        source.way = [created, StateStep("Scheduled", "2027-01-15T08:00:07Z", 7)]
        text = await text_of(client, "/pods/default/holder")
        assert 'Scheduled</th><td>2027-01-15T08:00:07Z</td><td class="number">7</td>' in text
        source.way = KubeError("the scheduler is away")
        assert '<p class="notice">the scheduler is away</p>' in await text_of(client, "/pods/default/holder")


NVSWITCH_NODE = details("n", gpus=3)


async def test_a_node_shows_what_connects_its_gpus_and_what_its_kubelet_lists():
    source = Source()
    source.nodes["n"] = NVSWITCH_NODE
    async with served(source) as (client, _):
        text = " ".join((await text_of(client, "/nodes/n")).split())
    assert text.count("<td>X</td>") == 3
    assert text.count("<td>NV4</td>") == 6
    assert "<dt>NV#</dt>" in text and "<dt>NODE</dt>" in text and "<dt>PIX</dt>" not in text
    assert '<th scope="row">mellanox.com/net</th><td>NODE</td><td>NODE</td><td>NODE</td><td>0</td>' in text
    assert "restricted, scope pod" in text and "Purser&#39;s agent" in text
    counts = "".join(f'<td class="number">{number}</td>' for number in (20, 19, 7))
    assert f'<th scope="row">nvidia.com/gpu</th>{counts}<td>0, 1</td>' in text


async def test_a_gpu_shows_what_connects_it_and_the_events_that_name_it():
    source = Source()
    source.nodes["n"] = NVSWITCH_NODE
    about = ("GPU 0 (GPU-0) is unhealthy: Xid 79. Restart the node", "GPU 1 (GPU-01) is healthy again", "no GPU")
    source.recorded["default", "Node", "n"] = [
        StateEvent("News", text, "Warning", 1, "2027-01-15T07:59:00Z", "purser-agent") for text in about
    ]
    async with served(source) as (client, _):
        text = " ".join((await text_of(client, "/gpus/GPU-0")).split())
        assert [each for each in about if each in text] == [about[0]]
        assert text.count("<td>NV4</td><td>this number of NVLinks") == 2
        assert '<th scope="row">mellanox.com/net' in text and "<td>NODE</td><td>the same NUMA node</td>" in text
        assert "<dt>NUMA node</dt><dd>0</dd>" in text
        source.nodes["n"] = None
        assert "does not report the node" in await text_of(client, "/gpus/GPU-0")


async def test_without_prometheus_a_node_has_no_use_over_time():
    async with served() as (client, _):
        text = await text_of(client, "/nodes/n?since=1h")
        assert "Use over time" not in text and "data-refresh-ms" not in text


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, "does not report the node"),
        (KubeError("https://read-api <b> cannot be reached"), "https://read-api &lt;b&gt; cannot be reached"),
        (NodeDetails("n", (), (), None), "only MIG devices, and their links"),
        (NodeDetails("n", details("n", 1).gpus, (), None), "GPU locations"),
        (NodeDetails("n", details("n", 1).gpus, (), None), "nothing reports on this kubelet"),
        (NodeDetails("n", tuple(unlinked(2)), (), None), "How the GPUs are connected is not known."),
        (
            details("n", MAX_LINKED_GPUS + 1),
            f"The first {MAX_LINKED_GPUS} of {MAX_LINKED_GPUS + 1} GPUs have a column.",
        ),
    ],
)
async def test_what_is_not_known_of_a_node_is_said(found, says):
    source = Source()
    source.nodes["n"] = found
    async with served(source) as (client, _):
        text = await text_of(client, "/nodes/n")
        assert says in text
        assert "default/holder" in text


async def test_a_page_that_could_not_wait_for_steps_or_events_is_read_again_soon(monkeypatch):
    monkeypatch.setattr(pages, "_ADDITIONS_TIMEOUT_S", 0.01)
    source = Source()

    async def never(*_):
        await asyncio.Event().wait()

    async with served(source) as (client, _):
        assert "data-refresh-ms" not in await text_of(client, "/pods/default/holder")
        source.steps = never
        text = await text_of(client, "/pods/default/holder")
        assert "The steps could not be read in time" in text and 'data-refresh-ms="3000"' in text
        source.events = never
        text = await text_of(client, "/nodes/n")
        assert "The events could not be read in time" in text and 'data-refresh-ms="3000"' in text


async def test_a_pod_that_waits_under_the_name_of_one_that_still_holds_gpus_is_the_one_shown():
    new = msgspec.structs.replace(waiting("holder"), uid="uid-new")
    async with served(Source(cluster((node("n", gpu(0, held=100)),), (grant("holder"),), (new,)))) as (client, _):
        text = await text_of(client, "/pods/default/holder")
        assert "<dt>Waiting for</dt>" in text and "What its containers hold" not in text


async def test_events_about_a_node_or_a_pod_are_on_its_page_the_last_first():
    source = Source()
    event = StateEvent("Pulled", "<b>", "Normal", 1, "2027-01-15T07:59:00Z", "kubelet")
    later = msgspec.structs.replace(event, reason="XidError", type="Warning", count=3)
    source.recorded["default", "Node", "n"] = [event] * 3 + [later]
    source.recorded["default", "uid-holder"] = KubeError("events cannot be listed: <forbidden>")
    async with served(source) as (client, _):
        page = await text_of(client, "/nodes/n")
        assert page.index("XidError") < page.index("Pulled") and page.count("Pulled") == 3
        assert '<span class="status-warn">Warning</span>' in page and '<td class="number">3</td>' in page
        assert "<b>" not in page
        assert "&lt;forbidden&gt;" in await text_of(client, "/pods/default/holder")
        assert "you are not allowed to list events in namespace default" in await text_of(client, "/nodes/other")


async def test_a_scheduler_that_does_not_answer_does_not_hold_up_a_node(monkeypatch):
    monkeypatch.setattr(pages, "_DETAILS_TIMEOUT_S", 0.01)
    source = Source()

    async def never(_):
        await asyncio.Event().wait()

    source.node_details = never
    async with served(source) as (client, _):
        assert "could not be read in time" in await text_of(client, "/nodes/n")


HOSTILE = "<script>alert('&\"</script>"


def hostile_details():
    """Each text of a node's details is that one."""
    plain = msgspec.to_builtins(msgspec.structs.replace(details("n"), gpus=tuple(unlinked(2))))

    def hostile(value, key=""):
        if isinstance(value, dict):
            return {name: hostile(each, name) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [hostile(each, key) for each in value]
        return HOSTILE if isinstance(value, str) and key != "levels" else value

    return msgspec.convert(hostile(plain), NodeDetails)


async def test_names_and_texts_of_the_cluster_never_become_markup():
    gpus = msgspec.structs.replace(gpu(held=1), uuid=HOSTILE, model=HOSTILE, reason=HOSTILE, mode=HOSTILE)
    held = grant(HOSTILE, HOSTILE)
    share = msgspec.structs.replace(held.containers[0].shares[0], gpu=HOSTILE, mig=HOSTILE)
    container = msgspec.structs.replace(held.containers[0], name=HOSTILE, shares=(share,))
    held = msgspec.structs.replace(held, namespace=HOSTILE, containers=(container,))
    wait = msgspec.structs.replace(waiting(HOSTILE, HOSTILE, HOSTILE), namespace=HOSTILE)
    source = Source(cluster((node(HOSTILE, gpus),), (held,), (wait,)))
    source.lines = [HOSTILE]
    source.way = [StateStep(HOSTILE, HOSTILE, 1)]
    source.problem = HOSTILE
    source.nodes[HOSTILE] = hostile_details()
    name = quote(HOSTILE, safe="")
    async with served(source) as (client, _):
        for path in ("/", "/nodes", f"/nodes/{name}", f"/gpus/{name}", f"/pods/{name}/{name}", "/waiting", "/use"):
            async with client.get(client._base_url.joinpath(path.lstrip("/"), encoded=True)) as response:
                text = await response.text()
                assert response.status == 200, (path, text)
                assert "<script>alert" not in text, path
                assert "onload" not in text


async def test_commands_to_copy_quote_names_for_the_shell():
    gpus = msgspec.structs.replace(gpu(), uuid="GPU-$(reboot)")
    async with served(Source(cluster((node("n", gpus),)))) as (client, _):
        assert "purser cordon gpu n &#39;GPU-$(reboot)&#39;" in await text_of(client, "/gpus/GPU-$(reboot)")


async def test_nodes_are_searched_and_come_in_pages():
    many = tuple(node(f"n-{number}") for number in range(NODES_PER_PAGE + 5))
    sick = node("sick", gpu(health=StateGpuHealth.UNHEALTHY))
    async with served(Source(cluster((*many, sick)))) as (client, _):
        first = await text_of(client, "/nodes")
        assert "page 1 of 2" in first and "/nodes/n-0" in first and "/nodes/sick" not in first
        assert "/nodes/sick" in await text_of(client, "/nodes?page=2")
        assert "/nodes/sick" in await text_of(client, "/nodes?page=99999999999999")
        assert "1 of 206 nodes" in await text_of(client, "/nodes?find=SICK")
        assert "1 of 206 nodes" in await text_of(client, "/nodes?health=Unhealthy")
        assert "206 of 206 nodes" in await text_of(client, "/nodes?health=nonsense&page=-1")
        assert "No node matches." in await text_of(client, f"/nodes?find={'x' * 3000}")


async def test_of_many_pods_that_wait_for_one_reason_the_oldest_are_shown():
    pods = tuple(
        msgspec.structs.replace(waiting(f"p-{number}"), since=f"2027-01-15T0{number % 6}:00:00Z")
        for number in range(MAX_PODS_OF_A_REASON + 10)
    )
    async with served(Source(cluster((node("n"),), (), pods))) as (client, _):
        text = await text_of(client, "/waiting")
        assert text.count('<th scope="row"><a href="/pods/default/p-') == MAX_PODS_OF_A_REASON
        assert (
            f"{MAX_PODS_OF_A_REASON + 10} pods wait, half of them for 6h or longer, the longest for 8h; "
            f"the {MAX_PODS_OF_A_REASON} oldest are shown"
        ) in text
        others = await text_of(client, "/pods/default/p-0")
        assert (
            f"{MAX_PODS_OF_A_REASON + 9} other pods wait, half of them for 5h or longer, the longest for 8h" in others
        )


async def test_pods_that_wait_show_what_was_tried_for_them_and_would_make_them_fit():
    less = "container c requests nvidia.com/gpumem: 8000 instead of 20000"
    pods = [
        msgspec.structs.replace(waiting(f"p-{n}"), suggestion=less, message=f"too small{ADVICE}{less}") for n in (0, 1)
    ]
    pods.append(msgspec.structs.replace(waiting("p-2"), suggestion="the pod does not have annotation <a>"))
    async with served(Source(cluster((node("n"),), (), (*pods, waiting("p-3"))))) as (client, _):
        text = await text_of(client, "/waiting")
        assert "3 of 4 would fit if they were changed" in text and f"2 of them if {less}." in text
        assert text.count(f'too small</td><td data-label="Would fit if">{less}</td>') == 2
        assert ">the pod does not have annotation &lt;a&gt;</td>" in text
        assert text.count(">see the pod's page</a></td>") == 1
        assert f"<dt>Would fit if</dt><dd>{less}</dd>" in await text_of(client, "/pods/default/p-0")
        assert "Would fit if" not in await text_of(client, "/pods/default/p-3")


async def test_where_kube_scheduler_refuses_a_pod_the_changes_are_on_the_pods_page():
    why = StateReason("kube-scheduler", "TaintToleration", 2, 0, "")
    unasked = msgspec.structs.replace(waiting("theirs", "KubeScheduler"), reasons=())
    theirs = (unasked, msgspec.structs.replace(waiting("read", "Taint"), reasons=(why,)))
    state = msgspec.structs.replace(
        cluster((node("n"),), (), (*theirs, waiting("ours"))), replica=StateReplica("", True, "")
    )
    async with served(Source(state)) as (client, _):
        text = await text_of(client, "/waiting")
        for name in ("theirs", "read", "ours"):
            assert f'aria-label="see the pod\'s page: default/{name}"' in text
        for name, told in (("theirs", True), ("read", False), ("ours", False)):
            assert ("also asks kube-scheduler" in await text_of(client, f"/pods/default/{name}")) == told


async def test_where_no_scheduler_is_asked_a_pod_that_only_kube_scheduler_holds_fits():
    fits = msgspec.structs.replace(waiting("fits", "KubeScheduler"), reasons=())
    async with served(Source(cluster((node("n"),), (), (fits,)))) as (client, _):
        assert ">it fits now</td>" in await text_of(client, "/waiting")
        assert "also asks kube-scheduler" not in await text_of(client, "/pods/default/fits")


async def test_waiting_pods_are_searched_by_namespace_and_name():
    pods = (waiting("train-1"), waiting("train-2"), msgspec.structs.replace(waiting("train-3"), namespace="team-b"))
    async with served(Source(cluster((node("n"),), (), pods))) as (client, _):
        found = await text_of(client, "/waiting?find=Team-B+train")
        assert "1 of 3 waiting pods matches." in found and "/pods/team-b/train-3" in found
        assert "/pods/default/train-1" not in found
        assert "No waiting pod matches." in await text_of(client, "/waiting?find=nobody")


async def test_nodes_under_maintenance_say_so_and_those_who_wait_hear_that_they_come_back():
    drained = msgspec.structs.replace(node("n", cordoned=True), cordoned_by="driver-upgrade", upgrade="drain-required")
    later = msgspec.structs.replace(node("later"), upgrade="upgrade-required")
    failed = msgspec.structs.replace(drained, name="failed", upgrade="upgrade-failed")
    people = node("people", cordoned=True)
    stuck = msgspec.structs.replace(node("stuck", cordoned=True), cordoned_by="mig-change", mig_state="failed")
    async with served(Source(cluster((drained, later, failed, people, stuck), (), (waiting("p"),)))) as (client, _):
        nodes = await text_of(client, "/nodes")
        assert "MIG change: failed</a>" in nodes
        assert "4 of 5 nodes" in await text_of(client, "/nodes?health=Cordoned")
        assert nodes.count("Driver upgrade: draining the node</a>") == 1 and "Driver upgrade: pending</a>" in nodes
        assert "<dt>Maintenance</dt>" in await text_of(client, "/nodes/n")
        assert "<dt>Maintenance</dt>" not in await text_of(client, "/nodes/people")
        text = await text_of(client, "/waiting")
        assert "keeps new pods away from 1 node for now" in text
        assert "</a> (driver upgrade: draining the node)." in text
        assert not [name for name in ("failed", "people", "stuck") if f"/nodes/{name}" in text]


async def test_a_pod_that_alone_waits_for_its_reason_has_no_others():
    async with served(Source(cluster((node("n"),), (), (waiting("p"), waiting("q", "Other"))))) as (client, _):
        assert "1 pod waits, for" in await text_of(client, "/waiting")
        assert "Same reason" not in await text_of(client, "/pods/default/p")


@pytest.mark.parametrize(
    ("host", "is_served"),
    [
        ("127.0.0.1:8480", True),
        ("localhost", True),
        ("LOCALHOST:8480", True),
        ("[::1]:8480", True),
        ("127.0.0.2", True),
        ("evil.example", False),
        ("evil.example:8480", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("10.0.0.1:8480", False),
        ("[2001:db8::1]:8480", False),
        ("", False),
    ],
)
async def test_only_requests_for_this_machine_are_answered(host, is_served):
    assert is_local_host(host) is is_served
    async with served() as (client, _):
        for path in ("/nodes", "/events", "/metrics", "/static/style.css"):
            if not is_served and host:
                async with client.get(path, headers={"Host": host}) as response:
                    assert response.status == 403
                    assert "holder" not in await response.text()


async def test_every_answer_has_the_headers_that_keep_scripts_of_others_out():
    async with served() as (client, _):
        for path in ("/", "/nothing", "/nodes/gone", "/static/style.css", "/events", "/readyz"):
            async with client.get(path) as response:
                policy = response.headers["Content-Security-Policy"]
                assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';"), path
                assert "unsafe" not in policy
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert response.headers["Cache-Control"] == "no-store"


async def test_pages_have_no_inline_script_or_style_and_ask_nobody_else():
    async with served() as (client, _):
        for path in ("/", "/nodes", "/waiting", "/use", "/nodes/n", "/pods/default/big"):
            text = await text_of(client, path)
            assert " style=" not in text and "<style" not in text and " on" + "click" not in text
            for source in text.split("<script")[1:]:
                assert ' src="/static/' in source.split(">")[0]
            assert "https://" not in text.replace(Source.where, "")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_other_sites_can_link_to_pages_and_do_nothing_else(site):
    """Browsers send these headers: an embedded page, a script, and a stream of another site's page are refused."""
    async with served() as (client, _):
        for path in ("/pods/default/holder", "/pods/default/nobody", "/events", "/static/style.css", "/metrics"):
            for dest, mode in (("object", "navigate"), ("script", "no-cors"), ("empty", "no-cors"), ("empty", "cors")):
                headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Dest": dest, "Sec-Fetch-Mode": mode}
                async with client.get(path, headers=headers) as response:
                    assert response.status == 403
                    assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        link = {"Sec-Fetch-Site": site, "Sec-Fetch-Dest": "document", "Sec-Fetch-Mode": "navigate"}
        async with client.get("/pods/default/holder", headers=link) as response:
            assert response.status == 200
            assert response.headers["Cross-Origin-Opener-Policy"] == "same-origin"


async def test_a_request_without_a_host_is_refused_without_a_look_at_dns(monkeypatch):
    monkeypatch.setattr("socket.getfqdn", lambda: "localhost")
    async with served() as (client, _), waiting_limit():
        reader, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port)
        writer.write(b"GET /nodes HTTP/1.0\r\n\r\n")
        assert b" 403 " in await reader.readline()
        writer.close()


async def test_commands_to_copy_have_no_control_characters():
    gpus = msgspec.structs.replace(gpu(), uuid="GPU-\x1b[201~\nreboot")
    async with served(Source(cluster((node("n", gpus),)))) as (client, _):
        text = await text_of(client, "/gpus/GPU-%1B[201~%0Areboot")
        command = text[text.index("purser cordon gpu n") :].partition("</pre>")[0]
        assert "\x1b" not in command and "reboot" in command.splitlines()[0]

"""What each address of the pages answers. Whose view of the cluster it is, `purser.web.access` has found before."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar
from urllib.parse import urlencode

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from purser.core.state import ROLLOUT_VERSION, ClusterState, Rollout, StateEvent, StateStep
from purser.kube import Clock, ConfigError, KubeError
from purser.usage import UsageCurves
from purser.web import rendering
from purser.web.answers import SEE_LOG_MESSAGE
from purser.web.cards import Health, cards_of, is_paused, takes_pods
from purser.web.faults import is_not_ready
from purser.web.feed import Feed
from purser.web.hardware import NodeHardware, hardware_of, links_of
from purser.web.history import DEFAULT_WINDOW, WINDOWS_S, UsageHistory, usage_of_namespace
from purser.web.past_use import PastUse, SinglePast, past_use, single_past
from purser.web.quotas import quotas_of_groups, quotas_of_pod
from purser.web.rollouts import active_policy, next_disrupted, operand_names, rollout_rows
from purser.web.tables import (
    closed_nodes,
    faulty_gpus,
    gpu_places,
    group_of_reason,
    node_rows,
    use_by_model,
    use_by_namespace,
    waiting_groups,
)
from purser.web.waits import waits_of_groups, waits_of_pod

log = structlog.get_logger("purser.web")

FEED = web.RequestKey("feed", Feed)
"""Of a request: what its viewer may see."""


@dataclass(frozen=True)
class Session:
    """How the viewer of a request has logged in."""

    namespace: str
    """Whose part of the state they see; empty: the whole."""
    is_by_cookie: bool
    """Whether they can log out here."""


SESSION = web.RequestKey("session", Session)
"""Of a request, where people log in."""
NODES_PER_PAGE = 200
_FIRST_STATE_TIMEOUT_S = 2.0
"""How long a page waits for a cluster that has not been read yet."""
_ADDITIONS_TIMEOUT_S = 1.0
"""How long a page waits for steps and events, which it has only in addition."""
_DETAILS_TIMEOUT_S = 5.0
"""How long a node's page waits for what the state does not say."""
_MAX_QUERY = 200
"""Characters of what is searched for."""
NOT_PAGES = ("/static/", "/events", "/healthz", "/readyz", "/metrics", "/used")
"""Answers that programs read."""


Item = TypeVar("Item")


@dataclass(frozen=True)
class Addition(Generic[Item]):
    """Steps or events, which a page has only in addition to what it is about."""

    items: Sequence[Item] = ()
    problem: str = ""
    """Why there are none, in a sentence."""
    is_late: bool = False
    """Whether they are still on their way, so that the page should be read again soon."""
    is_refused: bool = False
    """Whether reading the page again brings none."""


Values = Mapping[str, object]
_SingleReader = Callable[[UsageHistory, str], Awaitable[tuple[UsageCurves | None, str]]]
"""Of a window, how one GPU, node or pod was used, and why the newest is missing."""


class Pages:
    """A handler for each page."""

    def __init__(self, clock: Clock, history: UsageHistory | None = None) -> None:
        """``history``: how GPUs were used, where there is a Prometheus to ask."""
        self._clock, self._history = clock, history

    @property
    def routes(self) -> list[web.RouteDef]:
        """Where they are."""
        return [
            web.get("/", self._fleet),
            web.get("/used", self._used),
            web.get("/nodes", self._nodes),
            web.get("/nodes/{name}", self._node),
            web.get("/gpus/{uuid}", self._gpu),
            web.get("/pods/{namespace}/{name}", self._pod),
            web.get("/waiting", self._waiting),
            web.get("/use", self._use_page),
            web.get("/operator", self._operator),
        ]

    async def _fleet(self, request: web.Request) -> web.Response:
        return self.page(request, "fleet.html", {"knows_used": self._history is not None and _sees_all(request)})

    async def _used(self, request: web.Request) -> web.Response:
        """What is in use of each GPU, for the fleet's page."""
        if self._history is None:
            raise web.HTTPNotFound(text="GPU usage is not available: purser web runs without --prometheus.\n")
        if not _sees_all(request):
            raise web.HTTPNotFound(text="Only viewers of the whole cluster can see GPU usage.\n")
        found, problem = await self._history.used_now()
        values = {"gpus": found or (), "is_read": found is not None, "problem": problem}
        body = await asyncio.to_thread(msgspec.json.encode, values)
        response = web.Response(body=body, content_type="application/json")
        response.enable_compression()
        return response

    async def _nodes(self, request: web.Request) -> web.Response:
        find = request.query.get("find", "")[:_MAX_QUERY]
        health = request.query.get("health", "")
        health = health if health in set(Health) else ""
        state = await _state(request)
        rows = await asyncio.to_thread(node_rows, state, find, health)  # a part of a second for 80 000 pods
        values = {
            **_paginate(request, rows),
            "all": len(state.nodes),
            "find": find,
            "health": health,
            "page_link": lambda number: f"/nodes?{urlencode({'find': find, 'health': health, 'page': number})}",
        }
        return self.page(request, "nodes.html", values)

    async def _node(self, request: web.Request) -> web.Response:
        state, name = await _state(request), request.match_info["name"]
        node = next((each for each in state.nodes if each.name == name), None)
        if node is None:
            raise _not_found(f"Node {name} does not exist, has no GPUs, or is not visible to you.")
        places = gpu_places(state, lambda at, _: at is node)
        (hardware, unknown), events, past = await asyncio.gather(
            _hardware(request, name),
            _node_events(request, name),
            # As on the page of a GPU.
            self._single_past(request, lambda h, w: h.of_node(name, w)) if _sees_all(request) else _nothing(),
        )
        values = {
            "node": node,
            "gpus": len(cards_of(node)),
            "not_ready": is_not_ready(node),
            "takes_pods": takes_pods(node),
            "is_paused": is_paused(node),
            "places": places,
            "hardware": hardware,
            "unknown": unknown,
            "events": events,
            "past": past,
        }
        return self.page(request, "node.html", values)

    async def _gpu(self, request: web.Request) -> web.Response:
        uuid = request.match_info["uuid"]
        places = gpu_places(await _state(request), lambda _, gpu: uuid in (gpu.uuid, gpu.parent))
        place = next((each for each in places if each.gpu.uuid == uuid), None)
        if place is None:
            raise _not_found(f"No node that you may see lists a GPU with the UUID {uuid}.")
        node, card = place.node.name, place.gpu.parent or uuid
        (hardware, unknown), events, past = await asyncio.gather(
            _hardware(request, node),
            _node_events(request, node),
            # Who may see one namespace alone is not shown what others' pods do.
            self._single_past(request, lambda h, w: h.of_gpu(node, uuid, w)) if _sees_all(request) else _nothing(),
        )
        values = {
            "place": place,
            "children": [each for each in places if each is not place],
            "links": None if hardware is None else links_of(hardware, card),
            "unknown": unknown,
            # What concerns the GPU names it: the MIG devices on it share its fate.
            "events": replace(events, items=[each for each in events.items if card in _WORD.findall(each.message)]),
            "past": past,
        }
        return self.page(request, "gpu.html", values)

    async def _pod(self, request: web.Request) -> web.Response:
        state, namespace, name = await _state(request), request.match_info["namespace"], request.match_info["name"]
        grant = next((each for each in state.grants if (each.namespace, each.pod) == (namespace, name)), None)
        waiting = next((each for each in state.waiting if (each.namespace, each.pod) == (namespace, name)), None)
        if grant is None and waiting is None:
            raise _not_found(f"No pod {namespace}/{name} that you may see holds GPUs or waits for one.")
        if grant is not None and waiting is not None and grant.uid != waiting.uid:
            grant = None  # of the pod that had the name before
        uid = grant.uid if grant is not None else waiting.uid if waiting is not None else ""
        why, steps, events, past = await asyncio.gather(
            request[FEED].details(namespace, name),
            _steps(request, namespace, name, uid),
            _events(request, namespace, {"uid": uid}),
            self._pod_past(request, namespace, name) if grant is not None else _nothing(),
        )
        others = None if waiting is None else group_of_reason(state, waiting)
        quotas = None if waiting is None else await asyncio.to_thread(quotas_of_pod, state, waiting)
        past_waits = None if waiting is None else await asyncio.to_thread(waits_of_pod, state, waiting)
        values = {
            "namespace": namespace,
            "name": name,
            "grant": grant,
            "waiting": waiting,
            "from_scheduler": state.replica is not None,
            "why": why,
            "others": others,
            "quotas": quotas,
            "past_waits": past_waits,
            "seen_namespace": _namespace(request),
            "sick": [] if grant is None else faulty_gpus(state, grant),
            "steps": steps,
            "events": events,
            "past": past,
        }
        return self.page(request, "pod.html", values, section="/waiting" if grant is None else "/nodes")

    async def _pod_past(self, request: web.Request, namespace: str, name: str) -> SinglePast | None:
        return await self._single_past(request, lambda history, window: history.of_pod(namespace, name, window))

    async def _waiting(self, request: web.Request) -> web.Response:
        state, find = await _state(request), request.query.get("find", "")[:_MAX_QUERY]
        groups = waiting_groups(state, find)
        # Both are looked for among all pods.
        quotas = await asyncio.to_thread(quotas_of_groups, state, groups)
        waits = await asyncio.to_thread(waits_of_groups, state, groups)
        values = {
            "groups": list(zip(groups, quotas, waits, strict=True)),
            "namespace": _namespace(request),
            "total": sum(len(group.pods) for group in groups),
            "all": len(state.waiting),
            "from_scheduler": state.replica is not None,
            "find": find,
            "closed": closed_nodes(state),
        }
        return self.page(request, "waiting.html", values)

    async def _use_page(self, request: web.Request) -> web.Response:
        state = await _state(request)
        namespaces = await asyncio.to_thread(use_by_namespace, state)  # most of a second for 80 000 pods
        values = {"namespaces": namespaces, "models": use_by_model(state), "past": await self._past_use(request, state)}
        return self.page(request, "use.html", values)

    async def _past_use(self, request: web.Request, state: ClusterState) -> PastUse | None:
        if self._history is None:
            return None
        window = _window(request)
        history, problem = await self._history.of(window)
        seen = history and usage_of_namespace(history, _namespace(request))
        problem = _shown_problem(request, problem)
        # Who holds idle GPUs is looked for among all pods.
        return await asyncio.to_thread(past_use, window, seen, problem, state, shows_all=_sees_all(request))

    async def _single_past(self, request: web.Request, read: _SingleReader) -> SinglePast | None:
        if self._history is None:
            return None
        window = _window(request)
        curves, problem = await read(self._history, window)
        return single_past(window, curves, _shown_problem(request, problem))

    async def _operator(self, request: web.Request) -> web.Response:
        state = await _state(request)
        try:
            async with asyncio.timeout(_DETAILS_TIMEOUT_S):
                rollout = await request[FEED].rollout()
        except TimeoutError:
            late = "ClusterPolicies could not be read in time: reload the page to try again."
            rollout = Rollout(ROLLOUT_VERSION, (), (), (late,))
        except (KubeError, ConfigError) as error:
            rollout = Rollout(ROLLOUT_VERSION, (), (), (str(error),))
        rows = await asyncio.to_thread(rollout_rows, rollout, state)  # 0.1 s for 5000 nodes
        (disrupted, disrupted_total), policy = next_disrupted(rollout, rows), active_policy(rollout)
        values = {
            "rollout": rollout,
            "disrupted": disrupted,
            "disrupted_total": disrupted_total,
            "halted": policy is not None and policy.upgrade.halted,
            "operands": operand_names(rollout),
            **_paginate(request, rows),
        }
        return self.page(request, "operator.html", values)

    @property
    def errors(self) -> Middleware:
        """Says what went wrong on a page, not in a line of text."""

        @web.middleware
        async def shown(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                return await handler(request)
            except web.HTTPException as error:
                if request.path.startswith(NOT_PAGES):
                    raise
                heading = {403: "Not allowed", 404: "Not found", 503: "Not ready yet"}.get(error.status, error.reason)
                return self.page(request, "message.html", {"heading": heading, "text": error.text}, error.status)
            except Exception:
                log.exception("Failed to build a page", path=request.path)
                values = {"heading": "Error in Purser", "text": "See the log of purser web."}
                return self.page(request, "message.html", values, 500)

        return shown

    def page(
        self, request: web.Request, template: str, values: Values, status: int = 200, *, section: str = ""
    ) -> web.Response:
        """A template as the answer to a request. ``section``: path of the page at the top that it belongs to, where its
        own path does not say so."""
        feed = request.get(FEED)
        text = rendering.page(
            template,
            path=section or request.path,
            where="" if feed is None else feed.where,
            problem="" if feed is None else feed.problem,
            session=request.get(SESSION),
            is_live=feed is not None,
            now=self._clock.now().timestamp(),
            **values,
        )
        response = web.Response(text=text, content_type="text/html", status=status)
        response.enable_compression()
        return response


def _namespace(request: web.Request) -> str:
    """The only one that the viewer sees; empty: they see all."""
    session = request.get(SESSION)
    return "" if session is None else session.namespace


_WORD = re.compile(r"[\w-]+")
"""A UUID is one."""


def _sees_all(request: web.Request) -> bool:
    return not _namespace(request)


def _window(request: web.Request) -> str:
    """The window of time that a request asks for."""
    window = request.query.get("since", "")
    return window if window in WINDOWS_S else DEFAULT_WINDOW


def _shown_problem(request: web.Request, problem: str) -> str:
    return problem if _sees_all(request) or not problem else SEE_LOG_MESSAGE


async def _state(request: web.Request) -> ClusterState:
    feed = request[FEED]
    try:
        async with asyncio.timeout(_FIRST_STATE_TIMEOUT_S):
            await feed.wait_for_newer(0)
    except TimeoutError:
        pass
    if feed.state is None:
        raise web.HTTPServiceUnavailable(text="Purser is still reading the cluster. This page updates by itself.")
    return feed.state


async def _hardware(request: web.Request, node: str) -> tuple[NodeHardware | None, str]:
    """What is known of a node's hardware, or why nothing is."""
    try:
        async with asyncio.timeout(_DETAILS_TIMEOUT_S):
            details = await request[FEED].node_details(node)
    except TimeoutError:
        return None, "The hardware could not be read in time: reload the page to try again."
    except (KubeError, ConfigError) as error:
        return None, str(error)
    if details is None:
        return None, "The scheduler does not report the node's hardware. Its version may be too old."
    return hardware_of(details), ""


async def _nothing() -> None:
    """In the place of what is not asked."""


async def _steps(request: web.Request, namespace: str, name: str, uid: str) -> Addition[StateStep]:
    """A pod's."""
    return await _addition("steps", request[FEED].steps(namespace, name, uid))


async def _events(request: web.Request, namespace: str, about: Mapping[str, str]) -> Addition[StateEvent]:
    """Those about an object, the last first."""
    unknown = (
        f"Events are not shown because you are not allowed to list events in namespace {namespace}, or because they "
        "are read from a scheduler whose version does not report them."
    )
    found = await _addition("events", request[FEED].events(namespace, about), unknown)
    return replace(found, items=found.items[::-1])


async def _node_events(request: web.Request, name: str) -> Addition[StateEvent]:
    """Of those, Purser's own may name pods of any namespace."""
    if _sees_all(request):
        return await _events(request, "default", {"kind": "Node", "name": name})
    return Addition(
        problem="Events about nodes are shown only to users who may see the whole cluster.", is_refused=True
    )


async def _addition(what: str, asked: Awaitable[Sequence[Item] | None], unknown: str = "") -> Addition[Item]:
    """``unknown``: why there are none where the answer is None."""
    try:
        async with asyncio.timeout(_ADDITIONS_TIMEOUT_S):
            found = await asked
    except TimeoutError:
        problem = f"The {what} could not be read in time. This page tries again by itself."
        return Addition(problem=problem, is_late=True)
    except (KubeError, ConfigError) as error:
        return Addition(problem=str(error))
    return Addition(problem=unknown, is_refused=True) if found is None else Addition(found)


def _not_found(text: str) -> web.HTTPNotFound:
    return web.HTTPNotFound(text=f"{text} It may have been deleted.")


def _paginate(request: web.Request, rows: Sequence[object]) -> Values:
    """The part of a long table that a request asks for, and where in it that is."""
    pages = max(-(-len(rows) // NODES_PER_PAGE), 1)
    page = min(_number(request.query.get("page", "")), pages)
    shown = rows[(page - 1) * NODES_PER_PAGE : page * NODES_PER_PAGE]
    return {"rows": shown, "total": len(rows), "page": page, "pages": pages}


def _number(text: str) -> int:
    """A page's number; 1 where it is none."""
    return max(int(text[:9]), 1) if text.isascii() and text.isdecimal() else 1

"""The server under test, one for all tests, and a namespace of one's own."""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from purser.lab.apiserver import ApiServer

from .client import Api, until

REAL = os.environ.get("PURSER_CONTRACT_KUBECONFIG")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests run in the loop of the server."""
    for item in items:
        if item.path.parent == Path(__file__).parent and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server() -> AsyncIterator[ApiServer | None]:
    """The embedded server; None where a real one is tested."""
    if REAL:
        yield None
        return
    async with ApiServer(history=2000, bookmark_seconds=0.2) as embedded:
        yield embedded


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def api(server: ApiServer | None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    async with connected(server, tmp_path_factory.mktemp("contract")) as api:
        yield api


@asynccontextmanager
async def connected(server: ApiServer | None, folder: Path) -> AsyncIterator[Api]:
    kubeconfig = Path(REAL) if REAL else server.write_kubeconfig(folder / "kubeconfig")  # type: ignore[union-attr]
    api = Api(kubeconfig, embedded=server is not None)
    await api.connect()
    yield api
    await api.close()


@pytest.fixture
def unique() -> str:
    """A name that no other test uses."""
    return "t" + secrets.token_hex(4)


@pytest_asyncio.fixture(loop_scope="session")
async def ns(api: Api, unique: str) -> AsyncIterator[str]:
    """Path of a fresh namespace, `/api/v1/namespaces/<name>`."""
    path = f"/api/v1/namespaces/{unique}"
    (await api.post("/api/v1/namespaces", {"metadata": {"name": unique, "labels": {"contract": unique}}})).ok()

    async def has_account() -> Any:
        account = await api.get(f"{path}/serviceaccounts/default")
        # Before 1.24 pods are refused until the account has its token.
        return account.status == 200 and (api.minor >= 24 or account.body.get("secrets"))

    await until("default service account", has_account)
    yield path
    await api.delete(path)

"""The server under test and a namespace of one's own."""

import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from purser.lab.apiserver import ApiServer

from .client import Api, until

REAL = os.environ.get("PURSER_CONTRACT_KUBECONFIG")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer | None]:
    """The embedded server; None where a real one is tested."""
    if REAL:
        yield None
        return
    async with ApiServer(history=2000, bookmark_seconds=0.2) as embedded:
        yield embedded


@pytest.fixture
async def api(server: ApiServer | None, tmp_path: Path) -> AsyncIterator[Api]:
    kubeconfig = Path(REAL) if REAL else server.write_kubeconfig(tmp_path / "kubeconfig")  # type: ignore[union-attr]
    api = Api(kubeconfig, embedded=server is not None)
    await api.connect()
    yield api
    await api.close()


@pytest.fixture
def unique() -> str:
    """A name that no other test uses."""
    return "t" + secrets.token_hex(4)


@pytest.fixture
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

"""Reads objects as kubectl does, without starting it: tests that wait for something read it every moment."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlencode


class Reader:
    """Of one API server, as the user of a token."""

    def __init__(self, server: str, ca_file: Path, token: str) -> None:
        self._server = server
        self._ca_file = ca_file
        self._token = token
        self._paths: dict[str, tuple[str, str]] = {}

    def read(self, path: str, **parameters: str) -> Any:
        """What a GET is answered with; raises RuntimeError with the server's message where that is not a success."""
        query = f"?{urlencode(parameters)}" if parameters else ""
        request = urllib.request.Request(
            f"{self._server}{path}{query}", headers={"Authorization": f"Bearer {self._token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60, context=self._context) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise RuntimeError(f"GET {path}: {error.read().decode(errors='replace')}") from error
        except OSError as error:
            raise RuntimeError(f"GET {path}: {error}") from error

    def path(self, resource: str, name: str, namespace: str) -> str:
        """Where an object lies, or all of a namespace where no name is given; a resource is named as for kubectl.

        Raises RuntimeError where the server has no such resource.
        """
        if resource not in self._paths:
            self._paths = dict(self._discovered())
        if resource not in self._paths:
            raise RuntimeError(f"the server has no resource {resource}")
        version, plural = self._paths[resource]
        return version + plural.format(namespace=namespace) + (f"/{name}" if name else "")

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._ca_file)

    def _discovered(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """By every word for it; of words that several groups have, the core's is the last."""
        groups = self.read("/apis")["groups"]
        for version in (*(f"/apis/{each['preferredVersion']['groupVersion']}" for each in reversed(groups)), "/api/v1"):
            group = version.split("/")[2] if version.startswith("/apis") else ""
            for each in self.read(version)["resources"]:
                if "/" in each["name"]:
                    continue
                plural = f"/namespaces/{{namespace}}/{each['name']}" if each["namespaced"] else f"/{each['name']}"
                words = {each["name"], each["kind"], each["kind"].lower(), *each.get("shortNames", ())}
                for word in {*words, f"{each['name']}.{group}"}:
                    yield word, (version, plural)

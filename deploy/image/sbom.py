"""The bill of materials: every package in the image, as SPDX 2.3 in JSON."""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from .debs import Deb
from .wheels import Wheel


def document(base: Sequence[Deb], libraries: Sequence[Wheel], version: str, created: str) -> bytes:
    """The whole document; `created` in RFC 3339. The same packages give the same bytes."""
    image = {
        "SPDXID": "SPDXRef-image",
        "name": "purser",
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "primaryPackagePurpose": "CONTAINER",
        "filesAnalyzed": False,
    }
    packages = [image, *map(_deb, base), *map(_wheel, libraries)]
    digest = hashlib.sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()
    said = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"purser-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/purser-{version}-{digest[:32]}",
        "creationInfo": {"created": created, "creators": ["Tool: purser-image"]},
        "packages": packages,
        "relationships": [
            _relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image"),
            *(_relation("SPDXRef-image", "CONTAINS", str(each["SPDXID"])) for each in packages[1:]),
        ],
    }
    return json.dumps(said, indent=1, sort_keys=True).encode() + b"\n"


def _deb(deb: Deb) -> dict[str, Any]:
    fields = dict(re.findall(r"^(\S+): (.*)$", deb.control(), re.MULTILINE))
    source = fields.get("Source", deb.pin.name)
    url = f"pkg:deb/debian/{quote(deb.pin.name)}@{quote(deb.pin.version)}?arch={fields['Architecture']}&distro=bookworm"
    return _package(
        f"deb-{deb.pin.name}",
        deb.pin.name,
        deb.pin.version,
        deb.pin.sha256,
        url,
        supplier=f"Organization: {fields['Maintainer'].partition(' <')[0]}",
        sourceInfo=f"built from Debian's source package {source}",
        comment=f"licences: /usr/share/doc/{deb.pin.name}/copyright",
    )


def _wheel(wheel: Wheel) -> dict[str, Any]:
    metadata = wheel.metadata()
    version = metadata["Version"]
    url = f"pkg:pypi/{wheel.name}@{quote(version)}"
    declared = metadata["License-Expression"]
    more = {"licenseDeclared": declared} if declared else {}
    return _package(f"python-{wheel.name}", metadata["Name"], version, wheel.digest, url, **more)


def _package(identity: str, name: str, version: str, digest: str, url: str, **more: str) -> dict[str, Any]:
    reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url}
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", identity),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "checksums": [{"algorithm": "SHA256", "checksumValue": digest}],
        "externalRefs": [reference],
        **more,
    }


def _relation(one: str, how: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": how, "relatedSpdxElement": other}

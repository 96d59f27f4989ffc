"""In which form a client wants objects: as they are, as table rows, or as metadata alone (content negotiation)."""

from collections.abc import Mapping
from dataclasses import dataclass

from . import jsonio, tables
from .errors import Obj, StatusError
from .resources import ServedResource, served
from .store import StoredObject

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class ResourceView:
    """One representation of one resource's objects."""

    resource: ServedResource
    form: str = "object"
    """object, table or partial."""
    include: str = "Metadata"

    def one(self, record: StoredObject) -> bytes:
        """The bytes of one object; taken as stored where nothing has to change."""
        if self.form == "object" and self.resource.conversion is None:
            return record.body
        if self.form == "table":
            return self.convert(served(self.resource, record.object()))
        name = f"{self.form}:{self.resource.api_version}"
        return record.view(name, lambda obj: self._converted(served(self.resource, obj)))

    def convert(self, obj: Obj) -> bytes:
        """An object that is at hand decoded."""
        return jsonio.encode(self._converted(obj))

    def _converted(self, obj: Obj) -> Obj:
        if self.form == "table":
            metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            return tables.table(self.resource, [obj], metadata, include=self.include)
        return tables.partial_metadata(obj) if self.form == "partial" else obj

    def many(self, records: list[StoredObject], metadata: Obj) -> bytes:
        """A list."""
        if self.form == "table":
            objects = (served(self.resource, record.object()) for record in records)
            return jsonio.encode(tables.table(self.resource, objects, metadata, include=self.include))
        partial = self.form == "partial"
        kind = "PartialObjectMetadataList" if partial else self.resource.list_kind
        version = "meta.k8s.io/v1" if partial else self.resource.api_version
        head = jsonio.encode({"kind": kind, "apiVersion": version, "metadata": metadata})
        return b"".join((head[:-1], b',"items":[', b",".join(map(self.one, records)), b"]}"))


def negotiate(resource: ServedResource, accept: str, query: Mapping[str, str]) -> ResourceView:
    """The first representation in the Accept header that can be given; raises 406 where there is none."""
    for option in accept.split(",") if accept else ["*/*"]:
        kind, *parameters = (part.strip() for part in option.split(";"))
        wanted = dict(part.split("=", 1) for part in parameters if "=" in part)
        if kind not in (JSON, "*/*", "application/*", "text/html", "application/yaml"):
            continue
        form = _FORMS.get(wanted.get("as", ""))
        if form and wanted.get("v", "v1") == "v1":
            return ResourceView(resource, form, query.get("includeObject", "Metadata"))
    raise StatusError(406, "NotAcceptable", f"only the following media types are accepted: {JSON}")


_FORMS: dict[str, str] = {
    "": "object",
    "Table": "table",
    "PartialObjectMetadata": "partial",
    "PartialObjectMetadataList": "partial",
}

"""The description of the API.

The bundled Swagger UI knows OpenAPI 3.0 and not 3.1, which the framework writes, so the schemas
are put in the older form.
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from msgspec import UNSET
from msgspec.json import schema_components
from msgspec.structs import fields

from boxmatch import __version__
from boxmatch.broker.http.routing import answer
from boxmatch.wire import overview, requests, responses
from boxmatch.wire.cloudevents import CloudEvent

_DESCRIPTION: Final = """\
Feeds take events; subscribers subscribe to what they want of them, and get notifications.
A key is sent as `Authorization: Bearer KEY`. Errors are `application/problem+json`.
Notifications also come over a WebSocket at `/subscribers/{subscriber}/notifications/socket`."""

_OPEN: Final = frozenset({"/healthz", "/readyz"})


router = APIRouter(include_in_schema=False)


@router.get("/openapi.json")
async def openapi_json(request: Request) -> Response:
    app: FastAPI = request.app
    app.openapi_schema = app.openapi_schema or describe(app)
    return answer(app.openapi_schema)


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI 3.0 description of all routes."""
    described = get_openapi(
        title="Boxmatch", version=__version__, description=_DESCRIPTION, routes=app.routes
    )
    described["openapi"] = "3.0.3"
    components = described.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name, schema in _schemas().items():
        schemas.setdefault(name, schema)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    components["schemas"] = {name: _older(schema) for name, schema in schemas.items()}
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path, operations in described["paths"].items():
        for operation in operations.values():
            _finish(operation, has_key=path not in _OPEN)
    return described


def _finish(operation: dict[str, Any], *, has_key: bool) -> None:
    if has_key:
        operation["security"] = [{"key": []}]
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = _older(parameter["schema"])
    bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
    for content in (body.get("content", {}) for body in bodies):
        for media in content.values():
            media["schema"] = _older(media.get("schema", {}))


def _schemas() -> dict[str, Any]:
    """Of what comes and goes, which the framework knows nothing of."""
    kinds = [
        one
        for module in (requests, responses, overview)
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, (requests.RequestBody, responses.ResponseBody))
    ]
    _, found = schema_components([*kinds, CloudEvent], ref_template="#/components/schemas/{name}")
    for kind in kinds:
        if issubclass(kind, responses.ResponseBody) and not kind.__struct_config__.omit_defaults:
            # A client can do without some fields, but the broker writes them all.
            always = [one.encode_name for one in fields(kind) if one.default is not UNSET]
            found[kind.__name__]["required"] = always
    return found


def _older(schema: Any) -> Any:
    """A JSON schema in the dialect of OpenAPI 3.0."""
    if not isinstance(schema, dict):
        return schema
    result = {key: value for key, value in schema.items() if key != "propertyNames"}
    if "const" in result:
        result["enum"] = [result.pop("const")]
    if "patternProperties" in result:
        values = list(result.pop("patternProperties").values())
        result["additionalProperties"] = values[0]
    if isinstance(result.get("exclusiveMinimum"), (int, float)):
        result["minimum"] = result["exclusiveMinimum"]
        result["exclusiveMinimum"] = True
    if isinstance(result.get("examples"), list):
        result["example"] = result.pop("examples")[0]
    if result.get("default", 0) is None:  # it stands for "not given"
        del result["default"]
    if "properties" in result:
        result["properties"] = {name: _older(one) for name, one in result["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in result:
            result[key] = _older(result[key])
    for key in ("allOf", "oneOf", "anyOf"):
        if key in result:
            result[key] = [_older(one) for one in result[key]]
    return _nullable(result)


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    choices = schema.get("anyOf", [])
    rest = [one for one in choices if one != {"type": "null"}]
    if len(rest) == len(choices):
        return schema
    others = {key: value for key, value in schema.items() if key != "anyOf"}
    if len(rest) > 1:
        return {**others, "anyOf": rest, "nullable": True}
    if "$ref" in rest[0]:
        return {**others, "allOf": rest, "nullable": True}
    return {**rest[0], **others, "nullable": True}

"""Every body in `/openapi.json` has an example, and the daemon's own models take it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from smartlinkd.api import schemas
from smartlinkd.api.crews import schemas as crew_schemas
from smartlinkd.wire import Body

if TYPE_CHECKING:
    from tests.api.conftest import Daemon

MODELS = {**vars(crew_schemas), **vars(schemas)}


async def test_every_body_has_an_example_that_its_model_takes(daemon: Daemon) -> None:
    document = (await daemon.get("/openapi.json")).json()
    bodies = [
        operation["requestBody"]["content"]["application/json"]
        for methods in document["paths"].values()
        for operation in methods.values()
        if "requestBody" in operation
    ]
    for body in bodies:
        model = MODELS[body["schema"]["$ref"].rpartition("/")[2]]
        assert issubclass(model, Body)
        read = model.model_validate_json(json.dumps(body["example"]), by_alias=True)
        assert read.model_fields_set, model
    assert len(bodies) > 8


async def test_tag_of_every_operation_is_described(daemon: Daemon) -> None:
    document = (await daemon.get("/openapi.json")).json()
    described = {tag["name"] for tag in document["tags"]}
    used = {
        tag
        for methods in document["paths"].values()
        for operation in methods.values()
        for tag in operation["tags"]
    }
    assert used <= described
    assert document["servers"] == [{"url": "/", "description": "this daemon"}]

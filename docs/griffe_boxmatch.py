"""What the API reference has to be told about the sources, which are read and not run."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ANSWER = re.compile(r"Operation\[(.*)\]")
_PROMPT = re.compile(r"(?:^>>> .*\n(?:^(?!$).*(?:\n|\Z))*)", re.MULTILINE)


class ClientMethods(griffe.Extension):
    """What the two clients and their listeners share stands in classes of its own."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        client, listener = (pkg[f"client.base.Base{kind}"] for kind in ("Client", "Listener"))
        for path in ("client.blocking.Client", "client.asynchronous.AsyncClient"):
            owner = pkg[path]
            shared = [
                *pkg["client.operations.Operations"].members.values(),
                *pkg["client.subscriber_operations.SubscriberOperations"].members.values(),
                client["listen"],
            ]
            for one in shared:
                if one.is_function and not one.name.startswith("_"):
                    owner.set_member(one.name, _method(owner, one))
            owner.set_member("__init__", client["__init__"])
        for path in ("client.blocking.Listener", "client.asynchronous.AsyncListener"):
            pkg[path].set_member("dropped", listener["dropped"])


class Prompts(griffe.Extension):
    """Sessions at the prompt become blocks of code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            text = obj.docstring.value
            obj.docstring.value = _PROMPT.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text
            )


def _method(owner: griffe.Class, shared: griffe.Function) -> griffe.Function:
    returned = str(shared.returns)
    answer = _ANSWER.fullmatch(returned)
    if answer:
        returned = answer[1]
    elif returned == "L":
        returned = owner.name.replace("Client", "Listener")
    made = griffe.Function(
        shared.name,
        parameters=shared.parameters,
        returns=returned,
        docstring=shared.docstring,
        lineno=shared.lineno,
        endlineno=shared.endlineno,
        parent=owner,
    )
    if owner.name == "AsyncClient" and answer:
        made.labels.add("async")
    return made

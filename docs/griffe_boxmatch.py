"""What the API reference has to be told about the sources, which are read and not run."""

from __future__ import annotations

import re
from typing import Any

import griffe

_OPERATION = re.compile(r"_method\(operations\.(\w+)\)")
_ANSWER = re.compile(r"Operation\[(.*)\]")
_PROMPT = re.compile(r"(?:^>>> .*\n(?:^(?!$).*(?:\n|\Z))*)", re.MULTILINE)


class ClientMethods(griffe.Extension):
    """Methods of the clients, which are made from functions in `boxmatch.client.operations`."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        operations = pkg["client.operations"]
        for path in ("client.blocking.Client", "client.asynchronous.AsyncClient"):
            owner = pkg[path]
            for name, member in list(owner.members.items()):
                made = member.is_attribute and _OPERATION.fullmatch(str(member.value))
                if made:
                    owner.set_member(name, _method(owner, name, operations[made[1]]))


class Prompts(griffe.Extension):
    """Sessions at the prompt become blocks of code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            text = obj.docstring.value
            obj.docstring.value = _PROMPT.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text
            )


def _method(owner: griffe.Class, name: str, operation: griffe.Function) -> griffe.Function:
    answer = _ANSWER.fullmatch(str(operation.returns))
    made = griffe.Function(
        name,
        parameters=griffe.Parameters(
            griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword),
            *operation.parameters,
        ),
        returns=answer[1] if answer else operation.returns,
        docstring=operation.docstring,
        lineno=operation.lineno,
        endlineno=operation.endlineno,
        parent=owner,
    )
    if owner.name == "AsyncClient":
        made.labels.add("async")
    return made

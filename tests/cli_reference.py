"""The page `docs/cli.md`, made of what the commands say about themselves.

Written anew by `PYTHONPATH=tests .venv/bin/python tests/cli_reference.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from boxmatch.cli import app
from boxmatch.cli.help import Documented, examples_of, parameter_rows, summary_of, walk
from guide import ROOT

PAGE = ROOT / "docs" / "cli.md"

_BEGINNING = """\
# The command line

`boxmatch` lists the commands, and `boxmatch COMMAND --help` shows the options and examples of a
command. This page has the same texts.

- **Results** go to standard output, as text or, with `--json`, as JSON with stable names, one
  object per line. The benchmarks can also append them to a file: `--json PATH`.
- **Progress and warnings** go to standard error; progress is shown only on a terminal. `NO_COLOR=1`
  turns colours off.
- **Errors** are one paragraph on standard error. `--debug`, anywhere, or `BOXMATCH_DEBUG=1` adds
  the traceback.
- **Exit codes**: 0 for success; 1 for a negative result (damaged data, a benchmark with wrong
  results); 2 for an error; 130 after Ctrl-C.
- **Completion** for bash, zsh, fish and PowerShell: `boxmatch --install-completion`. It completes
  commands, options, presets, indexes, experiments, and the feeds of the broker at `BOXMATCH_URL`.
- **Broker**: set `--url` and `--key`, or `BOXMATCH_URL` and `BOXMATCH_KEY`.
"""


def page() -> str:
    """The whole page."""
    root: Any = typer.main.get_command(app)
    parts = [_BEGINNING]
    panel = None
    for documented in walk(root):
        below = len(documented.words)
        if below == 1:
            continue
        if below == 2 and documented.command.rich_help_panel != panel:
            panel = documented.command.rich_help_panel
            parts.append(f"## {panel}\n")
        parts += _section(documented)
    return "\n".join(parts)


def _section(documented: Documented) -> Iterator[str]:
    words, command = documented
    context = context_of(documented)
    yield f"### boxmatch {' '.join(words[1:])}\n"
    yield summary_of(command) + "\n"
    for paragraph in (command.help or "").split("\n\n")[1:]:
        yield " ".join(paragraph.split()) + "\n"
    if documented.is_group:
        return
    usage = " ".join([*words, *command.collect_usage_pieces(context)])
    yield f"`{usage}`\n"
    rows = [
        *parameter_rows(command, context, "argument"),
        *(row for row in parameter_rows(command, context, "option") if row[0] != "--help"),
    ]
    if rows:
        yield "| | |\n| --- | --- |"
        for name, text in rows:
            yield f"| `{_cell(name)}` | {_cell(_marked(text))} |"
        yield ""
    yield "<!-- not run: examples, which the tests of the command line parse -->"
    yield "\n".join(["```bash", *examples_of(command), "```\n"])


def context_of(documented: Documented) -> Any:
    """A context as when its help is asked for."""
    command = documented.command
    return command.make_context(" ".join(documented.words), [], resilient_parsing=True)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _marked(text: str) -> str:
    """Options and what is in brackets as code."""
    text = re.sub(r"(?<![\w`-])(--[a-z][a-z-]*)", r"`\1`", text)
    return re.sub(
        r"\s+\[((?:default|env var|required|at least|[\d.]+ to )[^\]]*)\]$", r" (\1)", text
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

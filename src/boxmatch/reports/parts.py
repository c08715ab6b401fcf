"""Pieces of a page. Each takes plain text and escapes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    labels: int = 1,
    code: int | None = None,
) -> str:
    """A table; its first `labels` columns say what a row is, the others are figures.

    `code` is the position of a label that is written in a language for programs.
    """

    def cell(text: str, place: int) -> str:
        shown = escape(text)
        if place >= labels:
            return f"<td>{shown}</td>"
        return f'<th class="label">{f"<code>{shown}</code>" if place == code else shown}</th>'

    head = "".join(
        f'<th class="label">{escape(name)}</th>' if place < labels else f"<th>{escape(name)}</th>"
        for place, name in enumerate(columns)
    )
    body = "".join(
        f"<tr>{''.join(cell(text, place) for place, text in enumerate(row))}</tr>" for row in rows
    )
    return (
        f'<div class="table"><table><caption>{escape(title)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def bullets(lines: Iterable[str]) -> str:
    """A list."""
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def facts(known: Mapping[str, object]) -> str:
    """Names with what is known of them, such as where a page comes from."""
    items = "".join(f"<dt>{escape(k)}</dt><dd>{escape(str(v))}</dd>" for k, v in known.items())
    return f"<dl>{items}</dl>"


def figures(strip: Iterable[tuple[str, str, str]]) -> str:
    """The main figures of a page side by side: each with its name and a remark, which may be ""."""
    items = "".join(
        f"<div><strong>{escape(value)}</strong><span>{escape(name)}</span>"
        f"{f'<small>{escape(remark)}</small>' if remark else ''}</div>"
        for value, name, remark in strip
    )
    return f'<div class="figures">{items}</div>'


def folded(title: str, content: str) -> str:
    """HTML that is shown on demand, and on paper."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"

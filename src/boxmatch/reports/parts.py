"""Pieces of a page. Each takes plain text and escapes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, labels: int = 1
) -> str:
    """A table; its first `labels` columns say what a row is, the others are figures."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>"
        + "".join(
            f"<th>{escape(cell)}</th>" if i < labels else f"<td>{escape(cell)}</td>"
            for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
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

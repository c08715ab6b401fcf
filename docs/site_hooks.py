"""What MkDocs does besides: files of the repository as pages, links to them, drawings in the page.

README.md is the site's first page; CONTRIBUTING.md, CHANGELOG.md and the examples are pages too. So
that every text stands once and its links work where it stands, they are rewritten here.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent

_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    # Its report: the rows as tables and charts.
    "docs/results.jsonl": "reproduction-report.html",
}
_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")
_DRAWING = re.compile(r'<img alt="([^"]*)" src="(?:[^"]*/)?images/([\w-]+\.svg)" ?/?>')


def on_config(config: MkDocsConfig) -> None:
    """Add the examples to the navigation, after the guides."""
    if config.nav is not None:
        titles = [next(iter(entry)) for entry in config.nav]
        shown = [{_title(source): page} for source, page in _examples().items()]
        config.nav.insert(titles.index("Guides") + 1, {"Examples": shown})


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not below docs."""
    for source, page in (_PAGES | _examples()).items():
        files.append(File.generated(config, page, content=_content(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that work in the repository into links that work on the site.

    A link to a file that is no page, such as a module, becomes its text.
    """
    pages = _PAGES | _examples()
    own = page.file.src_uri
    source = next((source for source, page in pages.items() if page == own), f"docs/{own}")
    folder = source if (ROOT / source).is_dir() else posixpath.dirname(source)

    def link(found: re.Match[str]) -> str:
        image, text, target, anchor = found.groups(default="")
        path = posixpath.normpath(posixpath.join(folder, target))
        path = path if path in pages else path.removesuffix("/README.md")
        if path in pages:
            path = pages[path]
        elif path.startswith("docs/"):
            path = path.removeprefix("docs/")
        elif (ROOT / path).exists():
            return text
        place = posixpath.relpath(path, posixpath.dirname(own) or ".")
        return f"{image}[{text}]({place}{anchor})"

    parts = _CODE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put drawings into the page itself, where they take on its colours."""

    def drawing(found: re.Match[str]) -> str:
        svg = (ROOT / "docs" / "images" / found[2]).read_text("utf-8")
        return svg.replace("<svg ", f'<svg role="img" aria-label="{found[1]}" ', 1)

    return _DRAWING.sub(drawing, html)


def _examples() -> dict[str, str]:
    """What there is, programs, and folders that say in a README what they are; with their pages."""
    found = sorted((ROOT / "examples").iterdir())
    shown = [path for path in found if path.suffix == ".py" or (path / "README.md").exists()]
    pages = {f"examples/{path.name}": f"examples/{path.stem}.md" for path in shown}
    return {"examples/README.md": "examples/index.md"} | pages


def _title(source: str) -> str:
    name = posixpath.basename(source)
    return "Overview" if name == "README.md" else name


def _content(path: Path) -> str:
    if path.suffix == ".jsonl":
        return _report(path)
    if path.is_dir():
        path /= "README.md"
    text = path.read_text("utf-8")
    return f"# {path.name}\n\n```python\n{text}```\n" if path.suffix == ".py" else text


def _report(path: Path) -> str:
    from boxmatch_bench.reproduce.kept import kept, run_of
    from boxmatch_bench.reproduce.report import report

    rows = kept(path)
    return report(rows, run_of(rows))

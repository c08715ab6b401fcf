"""Draws `docs/images/layers.svg`: who imports whom, as the sources say.

`python tests/layer_diagram.py` writes it; `test_docs.py` fails while it is out of date.
"""

from __future__ import annotations

from pathlib import Path

from test_package import LAYERS, ROOT, SOURCE, imports

DIAGRAM = ROOT / "docs" / "images" / "layers.svg"

_STEP = 26
_LEFT, _TOP = 120, 96


def imported() -> dict[str, set[str]]:
    """For each layer, the others that it imports."""
    found: dict[str, set[str]] = {layer: set() for layer in LAYERS}
    for path in SOURCE.rglob("*.py"):
        layer = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if layer in found:
            found[layer].update(imports(path))
    return {layer: others - {layer} for layer, others in found.items()}


def drawn() -> str:
    """A row and a column for each layer, a dot where the row imports the column."""
    side = _STEP * len(LAYERS)
    width, height = _LEFT + side + 24, _TOP + side + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" viewBox="0 0 {width} {height}" '
        f'width="{width}">',
        f"  {_style()}",
        f'  <rect class="panel" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
    ]
    for row, layer in enumerate(LAYERS):
        middle = _STEP // 2
        x, y = _LEFT + row * _STEP, _TOP + row * _STEP
        parts += [
            f'  <path class="faint" d="M{_LEFT} {y + middle} H{_LEFT + side}"/>',
            f'  <path class="faint" d="M{x + middle} {_TOP} V{_TOP + side}"/>',
            f'  <text class="ink end" x="{_LEFT - 10}" y="{y + 18}">{layer}</text>',
            f'  <text class="quiet" transform="translate({x + 17} {_TOP - 8}) rotate(-60)">'
            f"{layer}</text>",
            f'  <rect class="soft" x="{x + 3}" y="{y + 3}" width="20" height="20" rx="4"/>',
        ]
    for layer, others in imported().items():
        y = _TOP + LAYERS.index(layer) * _STEP + _STEP // 2
        for other in sorted(others, key=LAYERS.index):
            x = _LEFT + LAYERS.index(other) * _STEP + _STEP // 2
            parts.append(f'  <circle class="a" cx="{x}" cy="{y}" r="6"/>')
    return "\n".join([*parts, "</svg>", ""])


def _style() -> str:
    """That of the drawings made by hand."""
    other = (Path(DIAGRAM).parent / "overview.svg").read_text(encoding="utf-8")
    return other[other.index("<style>") : other.index("</style>") + len("</style>")]


if __name__ == "__main__":
    DIAGRAM.write_text(drawn(), encoding="utf-8")

from __future__ import annotations

from pathlib import Path

from guide import ROOT, run

SAYS = """\
Morning
  1  van enters the depot
  2  truck enters the harbour
  3  van leaves the depot
  4  van enters the market
Afternoon: the directory knows zones, vehicles and numbers
  5  van enters the harbour
  6  truck enters the depot
  7  truck leaves the harbour
  8  van leaves the market
  9  truck is gone from the depot
In the harbour now: van
For somebody who has heard everything before number 7
  7  truck leaves the harbour
  8  van leaves the market
  9  truck is gone from the depot
"""


def test_geofences(tmp_path: Path) -> None:
    assert run(["python", str(ROOT / "examples" / "geofences.py")], tmp_path) == SAYS

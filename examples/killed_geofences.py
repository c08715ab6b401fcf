"""Geofences in a process that is killed again and again, and loses nothing.

A driver process moves a van along a road with zones, and acknowledges each move when it returns.
This program kills it in the middle (SIGKILL, as an out-of-memory killer does), starts it anew, and
compares what is stored with what was acknowledged.

Run it with `python killed_geofences.py`. It needs only Boxmatch itself.
"""

import subprocess
import sys
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import boxmatch as bm

ROAD = {"road": bm.Schema({"km": "int"})}
ZONES = {f"zone {number}": {"km": (10 * number, 10 * number + 4)} for number in range(1, 100)}
KILLS = 3
MOVES = 40  # before each kill


def drive(folder: str) -> None:
    """The process that is killed: go on from where the van is stored."""
    # With sync="full", the default, moves would survive the loss of power too, and take longer.
    with bm.Spaces.open(folder, ROAD, sync="normal") as fleet:
        if fleet.publication_count == 0:
            fleet.load(subscriptions=ZONES, publications={"van": {"km": 0}})
        km = position(fleet)
        while True:
            km += 1
            fleet.update_publication("van", {"km": km})
            print(km, flush=True)  # the move has returned


def position(fleet: bm.Spaces) -> int:
    (region,) = fleet.get_publication("van").regions.values()
    return int(region["km"].low)


def drive_until_killed(folder: str) -> int:
    """The last move that was acknowledged."""
    command = [sys.executable, __file__, "drive", folder]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    moves = list(islice(driver.stdout, MOVES))
    driver.kill()
    moves += driver.stdout  # those that it acknowledged in its last moments
    driver.wait()
    driver.stdout.close()
    return int([move for move in moves if move.endswith("\n")][-1])


def main() -> None:
    with TemporaryDirectory() as parent:
        folder = str(Path(parent) / "fleet")
        for kill in range(1, KILLS + 1):
            acknowledged = drive_until_killed(folder)
            with bm.Spaces.open(folder) as fleet:
                stored = position(fleet)
                transitions = [one for batch in fleet.transitions() for one in batch]
            # The last move may be stored, although nobody heard of it any more.
            moves_kept = acknowledged <= stored <= acknowledged + 1
            expected = [
                (kind, zone)
                for zone, region in ZONES.items()
                for kind, km in (("enter", region["km"][0]), ("leave", region["km"][1] + 1))
                if km <= stored
            ]
            found = [(one.kind, one.subscription) for one in transitions]
            numbers = [one.sequence for one in transitions]
            print(
                f"killed {kill} of {KILLS}: all acknowledged moves are there: {moves_kept}, "
                f"each transition once: {found == expected}, "
                f"numbers without a gap: {numbers == list(range(1, len(numbers) + 1))}"
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["drive"]:
        drive(sys.argv[2])
    else:
        main()

"""Vehicles that move through zones: who enters, who leaves, and how it goes on after a restart.

Run it with `python geofences.py`.
"""

from tempfile import TemporaryDirectory

import boxmatch as bm
from boxmatch.spaces.transitions import Transitions

CITY = {"city": bm.Schema({"x": "float", "y": "float"})}

ZONES = {
    "depot": {"x": (0, 2), "y": (0, 2)},
    "market": {"x": (4, 7), "y": (1, 5)},
    "harbour": {"x": (6, 9), "y": (3, 8)},
}
WORDS = {"enter": "enters", "leave": "leaves", "deleted": "is gone from"}


def tell(transitions: Transitions) -> None:
    for number, kind, vehicle, zone in transitions:
        print(f"{number:3}  {vehicle} {WORDS[kind]} the {zone}")


def morning(fleet: bm.Spaces) -> None:
    for name, zone in ZONES.items():
        fleet.subscribe(name, zone)
    tell(fleet.publish("van", {"x": 1, "y": 1}))
    tell(fleet.publish("truck", {"x": 8, "y": 7}))
    tell(fleet.update_publication("van", {"x": 3}))  # only what changes: y is still 1
    tell(fleet.update_publication("van", {"x": 5}))
    tell(fleet.update_publication("truck", {"y": 6.5}))  # still in the harbour: nothing to tell


def afternoon(fleet: bm.Spaces) -> None:
    tell(fleet.update_publication("van", {"x": 6.5, "y": 4}))  # where two zones overlap
    tell(fleet.update_publication("truck", {"x": 1, "y": 1}))
    tell(fleet.update_subscription("market", {"y": (1, 3)}))  # zones can change too
    tell(fleet.retract("truck"))


def main() -> None:
    with TemporaryDirectory() as folder:
        print("Morning")
        with bm.Spaces.open(folder, CITY) as fleet:
            morning(fleet)

        print("Afternoon: the directory knows zones, vehicles and numbers")
        with bm.Spaces.open(folder) as fleet:
            afternoon(fleet)
            print("In the harbour now:", *fleet.matches_of_subscription("harbour"))

            print("For somebody who has heard everything before number 7")
            for batch in fleet.transitions(since=7):
                tell(batch)


if __name__ == "__main__":
    main()

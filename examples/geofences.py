"""Vehicles that move through zones: transitions, and how they continue after a restart.

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
WORDS = {"enter": "enters", "leave": "leaves", "deleted": "is deleted in"}


def show(transitions: Transitions) -> None:
    for number, kind, vehicle, zone in transitions:
        print(f"{number:3}  {vehicle} {WORDS[kind]} the {zone}")


def morning(fleet: bm.Spaces) -> None:
    for name, zone in ZONES.items():
        fleet.subscribe(name, zone)
    show(fleet.publish("van", {"x": 1, "y": 1}))
    show(fleet.publish("truck", {"x": 8, "y": 7}))
    show(fleet.update_publication("van", {"x": 3}))  # only x changes, y is still 1
    show(fleet.update_publication("van", {"x": 5}))
    show(fleet.update_publication("truck", {"y": 6.5}))  # still in the harbour: no transition


def afternoon(fleet: bm.Spaces) -> None:
    show(fleet.update_publication("van", {"x": 6.5, "y": 4}))  # in the overlap of two zones
    show(fleet.update_publication("truck", {"x": 1, "y": 1}))
    show(fleet.update_subscription("market", {"y": (1, 3)}))  # zones can change too
    show(fleet.retract("truck"))


def main() -> None:
    with TemporaryDirectory() as folder:
        print("Morning")
        with bm.Spaces.open(folder, CITY) as fleet:
            morning(fleet)

        print("Afternoon, after a restart: zones, vehicles and numbers are stored")
        with bm.Spaces.open(folder) as fleet:
            afternoon(fleet)
            print("In the harbour now:", *fleet.matches_of_subscription("harbour"))

            print("Transitions since number 7")
            for batch in fleet.transitions(since=7):
                show(batch)


if __name__ == "__main__":
    main()

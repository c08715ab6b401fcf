"""Subscribers that look only at the head of each note.

An event of 616 attributes comes to every subscriber. To parse it each time would take longer than
the broker takes for all of it, on the same machine.
"""

from __future__ import annotations

import re
from array import array
from time import perf_counter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from boxmatch_bench.broker.subscribers import Received, Subscriber
from boxmatch_bench.broker.wire import WireError

_NOTE: Final = re.compile(
    rb'\{"sequence":(\d+),"feed":"[^"]*","at":[^,]*,"subscriptions":\[([^\]]*)\],'
    rb'"rate":([^,]*),"event":\{"a0":(\d+)'
)
_NOTES: Final = b'{"type":"notes"'


class Heard(Received):
    """What was delivered, an entry for each note."""

    def clear(self) -> None:
        super().clear()
        self.rate = array("d")
        self.ids: list[bytes] = []
        """Of the subscriptions, as they came; many are put together at times."""
        self.matches = 0

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        counts = np.array([one.count(b",") + 1 for one in self.ids], np.int64)
        digits = b",".join(self.ids).replace(b'"', b"").decode()
        return {
            **{name: np.array(getattr(self, name)) for name in ("time", "sequence", "rate")},
            "value": np.array(self.value),
            "matches": counts,
            "subscription": np.fromstring(digits, np.int64, sep=","),
        }


class Listener(Subscriber):
    """One socket."""

    _received: Heard

    def _take(self, text: bytes) -> None:
        now = perf_counter()
        if not text.startswith(_NOTES):
            self._other(orjson.loads(text))
            return
        heard = self._received
        found = 0
        for note in _NOTE.finditer(text):
            head, ids, rate, value = note.groups()
            sequence = int(head)
            if sequence <= self._last:
                heard.disordered += 1
            self._last = sequence
            heard.time.append(now)
            heard.sequence.append(sequence)
            heard.rate.append(float(rate))
            heard.value.append(int(value))
            heard.ids.append(ids)
            heard.matches += ids.count(b",") + 1
            found += 1
        if not found:
            raise WireError(f"a note that is not understood: {text[:200]!r}")
        heard.notes += found
        self._pending += found
        if self._pending >= self._every:
            self.acknowledge()

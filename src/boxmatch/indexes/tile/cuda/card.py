"""Cards: whether there is one, and what becomes of a search when it fails."""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING, Any, Final

from boxmatch.arrays import Int32Array
from boxmatch.errors import DeviceError, IndexConfigError, ResultTooLargeError
from boxmatch.extras import requires
from boxmatch.indexes.base import Query
from boxmatch.indexes.tile.layout import TileState
from boxmatch.model.points import FloatTable

if TYPE_CHECKING:
    from boxmatch.indexes.tile.cuda.search import CardSearch

_log = logging.getLogger("boxmatch")

_DEVICE: Final = re.compile(r"cpu|(?:auto|cuda)(?::(\d+))?")
_OLDEST: Final = (7, 0)
"""Compute capability from which on lanes of a warp may go ways of their own."""

_telling = threading.Lock()
_told: set[str] = set()


def check_device(device: object) -> str:
    """The device, if it is one: `cpu`, `cuda`, `auto`, or `cuda:N` and `auto:N` for card N."""
    if not isinstance(device, str) or not _DEVICE.fullmatch(device):
        raise IndexConfigError(f"device is 'cpu', 'cuda', 'cuda:N' or 'auto', not {device!r}")
    return device


def number_of(device: str) -> int:
    """The number of the card that a device names."""
    found = _DEVICE.fullmatch(device)
    return int(found[1] or 0) if found else 0


def check_card(number: int) -> None:
    """`DeviceError` or `MissingExtraError` if batches cannot be matched on this card."""
    with requires("cuda", "matching on a graphics card"):
        import numba_cuda  # noqa: F401  # numba has a module of the same name that it replaces
        from numba import cuda
        from numba.cuda.cudadrv.error import CudaSupportError
    try:
        cards = len(cuda.gpus)
    except CudaSupportError as error:
        raise DeviceError(f"there is no card that CUDA can use: {_one_line(error)}") from None
    except Exception as error:
        raise DeviceError(f"CUDA does not work here: {_one_line(error)}") from None
    if number >= cards:
        raise DeviceError(
            f"there is no card {number}: this machine has "
            + ("none" if cards == 0 else f"{cards}, from 0 on")
        )
    try:
        capability = cuda.gpus[number].compute_capability
    except Exception as error:
        raise DeviceError(f"card {number} cannot be used: {_one_line(error)}") from None
    if not _is_simulated() and tuple(capability) < _OLDEST:
        raise DeviceError(
            f"card {number} is of compute capability {capability[0]}.{capability[1]}: "
            f"{_OLDEST[0]}.{_OLDEST[1]} is the least"
        )


class CardIndex:
    """An index on a card, or what stands for it where there is none.

    With `auto` whatever is wrong is logged once and the processor searches; with `cuda` it is an
    error.
    """

    def __init__(self, state: TileState, device: str) -> None:
        self.device = device
        self._state = state
        self._making = threading.Lock()
        self._search: CardSearch | None = None
        self._given_up = False

    @property
    def _is_optional(self) -> bool:
        return self.device.startswith("auto")

    @property
    def is_usable(self) -> bool:
        """Whether it is worth to try; puts the index on the card at the first time."""
        if self._given_up:
            return False
        try:
            self.prepared()
        except (DeviceError, ImportError) as error:
            if not self._is_optional:
                raise
            self._give_up(error)
        return not self._given_up

    def search(self, query: Query, table: FloatTable | None = None) -> Int32Array | None:
        """As `Index._search`, of a table in the place of points if there is one.

        None if the processor is to search, or find out what is wrong with the table.
        """
        try:
            search = self.prepared()
            found: Int32Array | None = _translated(lambda: search.search(query, table))
            return found
        except DeviceError as error:
            if not self._is_optional:
                raise
            self._give_up(error)
            return None

    def prepared(self) -> CardSearch:
        """What searches the index, which is put on the card if it is not there."""
        with self._making:
            if self._search is None:
                number = number_of(self.device)
                check_card(number)
                from boxmatch.indexes.tile.cuda.search import CardSearch

                self._search = _translated(lambda: CardSearch(self._state, number))
            return self._search

    def _give_up(self, error: Exception) -> None:
        self._given_up = True
        self._search = None
        message = str(error)
        with _telling:
            new = message not in _told
            _told.add(message)
        if new:
            _log.warning("batches are matched on the processor: %s", message)

    @property
    def nbytes(self) -> int:
        """Bytes on the card."""
        search = self._search
        return 0 if search is None else search.nbytes


def _translated(work: Any) -> Any:
    """`work`, whose errors of CUDA become ours."""
    from numba.core.errors import NumbaError
    from numba.cuda.cudadrv.error import CudaSupportError

    try:
        from numba.cuda.cudadrv.driver import CudaAPIError
    except ImportError:  # the simulator has none
        CudaAPIError = CudaSupportError
    try:
        return work()
    except ResultTooLargeError:
        raise
    except (CudaSupportError, CudaAPIError, NumbaError, MemoryError) as error:
        text = _one_line(error)
        if "OUT_OF_MEMORY" in text or isinstance(error, MemoryError):
            raise DeviceError(
                f"the card has too little memory for these subscriptions and batches ({text}): "
                "match smaller batches, or on the processor"
            ) from error
        raise DeviceError(f"the card failed, or was lost: {text}") from error


def _is_simulated() -> bool:
    from numba import config

    return bool(config.ENABLE_CUDASIM)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__

from __future__ import annotations

import logging
import random
import threading
from pathlib import Path

import pytest

from boxmatch.broker.access import (
    OPEN,
    Grant,
    Keys,
    Meter,
    check_exposure,
    check_local_request,
    is_allowed_host,
)
from boxmatch.broker.access import exposure as exposure_module
from boxmatch.broker.settings import Limits
from boxmatch.errors import AccessError, BrokerError, LimitError


class TestExposure:
    @pytest.mark.parametrize(
        "host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.3.2.1", "::ffff:127.0.0.1"]
    )
    def test_loopback_needs_no_keys(self, tmp_path: Path, host: str) -> None:
        with Keys.open(tmp_path) as keys:
            check_exposure(host, keys, None)

    @pytest.mark.parametrize(
        "host", ["0.0.0.0", "::", "", "192.168.1.5", "8.8.8.8", "::ffff:8.8.8.8", "no.such.invalid"]
    )
    def test_elsewhere_keys_are_needed(self, tmp_path: Path, host: str) -> None:
        with Keys.open(tmp_path) as keys:
            for certificate in (None, tmp_path / "certificate.pem"):
                with pytest.raises(BrokerError, match="boxmatch admin keys create"):
                    check_exposure(host, keys, certificate)
            keys.create("x", admin=True)
            check_exposure(host, keys, tmp_path / "certificate.pem")

    def test_a_name_for_more_than_this_machine(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def found(name: str, port: object) -> list[tuple[object, ...]]:
            addresses = ("127.0.0.1", "10.0.0.3") if name == "both" else ("127.0.0.1", "::1")
            return [(0, 0, 0, "", (address, 0)) for address in addresses]

        monkeypatch.setattr(exposure_module.socket, "getaddrinfo", found)
        with Keys.open(tmp_path) as keys:
            check_exposure("mine", keys, None)
            with pytest.raises(BrokerError, match="others could reach both"):
                check_exposure("both", keys, None)

    def test_says_that_keys_go_in_the_clear(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with Keys.open(tmp_path) as keys, caplog.at_level(logging.WARNING, "boxmatch.broker"):
            keys.create("x", admin=True)
            check_exposure("0.0.0.0", keys, tmp_path / "certificate.pem")
            check_exposure("127.0.0.1", keys, None)
            assert caplog.messages == []
            check_exposure("0.0.0.0", keys, None)
        [message] = caplog.messages
        assert "without a certificate" in message


class TestLocalRequests:
    @pytest.mark.parametrize(
        "host",
        ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080"],
    )
    def test_this_machine(self, host: str) -> None:
        assert is_allowed_host(host)
        check_local_request(host, None)
        check_local_request(host, f"http://{host}")
        check_local_request(host, "https://localhost:3000")

    @pytest.mark.parametrize(
        "host",
        [
            None,
            "",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "evil.example#localhost",
            "localhost@evil.example",
            "evil@localhost",
            "localhost:8080:80",
            "localhost:x",
            "localhost ",
            "localhost\n",
            "::1",
            "[::1",
            "127.0.0.1.nip.io",
            "0.0.0.0",
            "192.168.0.1",
        ],
    )
    def test_other_names_for_it(self, host: str | None) -> None:
        assert not is_allowed_host(host)
        with pytest.raises(AccessError, match="only answers to localhost") as caught:
            check_local_request(host, None)
        assert not caught.value.unknown  # a key would not help

    @pytest.mark.parametrize(
        "origin",
        [
            "",
            "null",
            "https://evil.example",
            "http://localhost.evil.example",
            "http://localhost@evil.example",
            "file://localhost",
            "localhost",
            "http://[::1",
            "chrome-extension://abc",
        ],
    )
    def test_other_web_pages(self, origin: str) -> None:
        with pytest.raises(AccessError, match="other web pages"):
            check_local_request("localhost:8080", origin)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _grant(id: str = "key", **limits: float) -> Grant:
    return Grant(id=id, label=id, limits=Limits(**limits))  # type: ignore[arg-type]


class TestMeter:
    def test_without_limits(self) -> None:
        meter = Meter()
        for _ in range(1000):
            meter.take_requests(OPEN)
            meter.take_events(OPEN, 1_000_000)

    def test_a_second_is_there_at_once_and_then_it_drips(self) -> None:
        clock = Clock()
        meter = Meter(clock)
        grant = _grant(requests_per_second=10)
        for _ in range(10):
            meter.take_requests(grant)
        with pytest.raises(LimitError, match="10 requests a second") as caught:
            meter.take_requests(grant)
        assert caught.value.retry_after == pytest.approx(0.1)
        clock.now += 0.1
        meter.take_requests(grant)
        with pytest.raises(LimitError):
            meter.take_requests(grant)
        clock.now += 3600  # what was not used is not saved up
        for _ in range(10):
            meter.take_requests(grant)
        with pytest.raises(LimitError):
            meter.take_requests(grant)

    def test_less_than_one_a_second(self) -> None:
        clock = Clock()
        meter = Meter(clock)
        grant = _grant(requests_per_second=0.1)
        meter.take_requests(grant)
        with pytest.raises(LimitError) as caught:
            meter.take_requests(grant)
        assert caught.value.retry_after == pytest.approx(10)

    def test_large_batches_are_paid_for_afterwards(self) -> None:
        clock = Clock()
        meter = Meter(clock)
        grant = _grant(events_per_second=100)
        meter.take_events(grant, 1000)
        with pytest.raises(LimitError) as caught:
            meter.take_events(grant, 1)
        assert caught.value.retry_after == pytest.approx(9.01)
        clock.now += caught.value.retry_after
        meter.take_events(grant, 1)

    def test_what_is_refused_takes_nothing(self) -> None:
        clock = Clock()
        meter = Meter(clock)
        grant = _grant(events_per_second=100)
        meter.take_events(grant, 60)
        for _ in range(5):
            with pytest.raises(LimitError):
                meter.take_events(grant, 50)
        meter.take_events(grant, 40)

    def test_none_are_free(self) -> None:
        meter = Meter(Clock())
        grant = _grant(events_per_second=1)
        meter.take_events(grant, 1)
        meter.take_events(grant, 0)

    def test_nothing_allowed(self) -> None:
        with pytest.raises(LimitError, match="no events") as caught:
            Meter().take_events(_grant(events_per_second=0), 1)
        assert caught.value.retry_after is None

    def test_keys_and_kinds_do_not_share(self) -> None:
        meter = Meter(Clock())
        for id in ("a", "b"):
            grant = _grant(id, requests_per_second=1, events_per_second=1)
            meter.take_requests(grant)
            meter.take_events(grant, 1)

    def test_a_clock_that_goes_back_gives_nothing(self) -> None:
        clock = Clock()
        meter = Meter(clock)
        grant = _grant(requests_per_second=1)
        meter.take_requests(grant)
        clock.now -= 50
        with pytest.raises(LimitError):
            meter.take_requests(grant)

    @pytest.mark.parametrize("seed", range(5))
    def test_over_time_the_rate_is_kept(self, seed: int) -> None:
        random_ = random.Random(seed)
        clock = Clock()
        meter = Meter(clock)
        rate = random_.choice([0.3, 7.0, 1000.0])
        grant = _grant(events_per_second=rate)
        largest = int(5 * rate) + 1
        taken = 0
        for _ in range(2000):
            count = random_.randint(1, largest)
            try:
                meter.take_events(grant, count)
                taken += count
            except LimitError as error:
                wait = error.retry_after
                assert wait is not None
                assert wait > 0
                if random_.random() < 0.5:  # come again just when told to: it is let through
                    clock.now += wait
                    meter.take_events(grant, count)
                    taken += count
            clock.now += random_.random() / rate
        passed = clock.now - 100
        assert taken <= rate * passed + max(rate, 1) + largest
        assert taken >= 0.5 * rate * passed

    def test_threads_get_no_more_together(self) -> None:
        meter = Meter(Clock())
        grant = _grant(requests_per_second=500)
        passed: list[int] = []

        def work() -> None:
            count = 0
            for _ in range(500):
                try:
                    meter.take_requests(grant)
                    count += 1
                except LimitError:
                    pass
            passed.append(count)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(passed) == 500

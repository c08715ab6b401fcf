"""Where webhooks may go to: URLs, addresses, names that move, certificates."""

import asyncio
import ssl

import httpx
import pytest
import trustme
from webhook_receiver import Desk, Receiver, hook, notification, run, until

from boxmatch.broker.delivery import webhook_targets as targets_module
from boxmatch.broker.delivery.webhook_targets import (
    Webhook,
    WebhookTarget,
    check_webhook,
    is_public,
)
from boxmatch.errors import TargetError


def test_a_refused_connection_is_a_failure_and_the_next_address_is_tried():
    async def main():
        async with Receiver() as receiver, Desk() as desk:
            desk.names["hooks.example"] = ["127.0.0.2", "127.0.0.1"]
            desk.put("ann", notification(1))
            desk.sender.start("ann", hook(f"http://hooks.example:{receiver.port}/"))
            await until(lambda: desk.outcomes == [("ann", "delivered")])
            assert receiver.requests[0]["headers"]["host"] == f"hooks.example:{receiver.port}"
            url = receiver.url
        async with Desk() as desk:
            desk.put("ann", notification(1))
            desk.sender.start("ann", hook(url, attempts=1))
            await until(lambda: desk.dead)
            assert "ConnectError" in desk.dead[0][4]

    asyncio.run(main())


PRIVATE = [
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.1.2.3", "172.16.0.1",
    "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.127.255.255",
    "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1",
    "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16", "::", "::1",
    "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1",
    "3fff::1", "100::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:a00:1", "::127.0.0.1",
    "::8.8.8.8", "2002:7f00:1::1", "2002:808:808::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "5f00::1", "nonsense", "127.1",
]  # fmt: skip
PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "100.63.255.255",
    "100.128.0.1",
    "172.32.0.1",
    "172.15.255.255",
    "192.169.0.1",
    "2606:4700::1111",
    "2a00:1450::1",
    "2001:4860:4860::8888",
    "2003::1",
    "64:ff9b::8.8.8.8",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_that_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_that_are_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "answer",
    [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["::ffff:127.0.0.1"], ["100.64.1.1"], ["fe80::1%2"]],
)
def test_a_name_at_a_private_address_is_refused_at_every_attempt(answer):
    async def scenario(receiver, desk):
        desk.names["hooks.example"] = answer
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(f"http://hooks.example:{receiver.port}/", attempts=3))
        await until(lambda: desk.dead)
        assert "not a public address" in desk.dead[0][4]
        assert desk.looked_up == ["hooks.example"] * 3
        assert receiver.connections == 0

    run(scenario, allow_private=False)


def test_a_name_that_moves_is_followed_only_after_a_check(monkeypatch):
    """DNS rebinding: public when first asked, loopback from then on."""
    connected = []

    async def scenario(receiver, desk):
        async def refused(self, address, body, headers):
            connected.append(address)
            raise httpx.ConnectError("refused")

        monkeypatch.setattr(targets_module.WebhookConnection, "_post_to", refused)
        desk.names["hooks.example"] = [["93.184.216.34"], ["127.0.0.1"], ["127.0.0.1"]]
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(f"http://hooks.example:{receiver.port}/", attempts=3))
        await until(lambda: desk.dead)
        assert connected == ["93.184.216.34"]
        assert receiver.connections == 0

    run(scenario, allow_private=False)


def test_the_connection_goes_to_the_address_that_was_checked():
    """The name exists for our resolver alone, so no other look-up can have been made."""

    async def scenario(receiver, desk):
        desk.names["only-here.invalid"] = ["127.0.0.1"]
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(f"http://only-here.invalid:{receiver.port}/"))
        await until(lambda: desk.cursors.get("ann") == 1)
        assert desk.looked_up == ["only-here.invalid"]
        host = receiver.requests[0]["headers"]["host"]
        assert host == f"only-here.invalid:{receiver.port}"

    run(scenario)


def test_a_name_without_an_address_is_a_failure():
    async def scenario(receiver, desk):
        desk.names["b.invalid"] = OSError("no such host")
        for name in ("a.invalid", "b.invalid"):
            desk.put(name, notification(1))
            desk.sender.start(name, hook(f"http://{name}/", attempts=1))
        await until(lambda: len(desk.dead) == 2)
        assert sorted(letter[4] for letter in desk.dead) == [
            "a.invalid has no address",
            "b.invalid cannot be resolved: no such host",
        ]

    run(scenario)


def test_the_certificate_has_to_be_for_the_name():
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("hooks.example").configure_cert(server)
    names = []
    server.sni_callback = lambda sock, name, context: names.append(name)
    client = ssl.create_default_context()
    authority.configure_trust(client)

    async def main():
        async with Receiver(tls=server) as receiver, Desk(tls=client) as desk:
            desk.names = {"hooks.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}
            for name in ("hooks", "other"):
                desk.put(name, notification(1))
                url = f"https://{name}.example:{receiver.port}/"
                desk.sender.start(name, hook(url, attempts=1))
            await until(lambda: desk.dead and desk.cursors.get("hooks") == 1)
            assert desk.dead[0][0] == "other"
            assert "CERTIFICATE_VERIFY_FAILED" in desk.dead[0][4]
            assert set(names) == {"hooks.example", "other.example"}
            assert len(receiver.requests) == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/", "file:///etc/passwd", "//example.com/", "example.com", "", "http://",
        "http://:80/", "http://user:pass@example.com/", "http://user@example.com/",
        "http://example.com\\@127.0.0.1/", "http://exa mple.com/", "http://example.com:0/",
        "http://example.com:99999/", "http://example.com:x/", "http://a\r\nX: y/",
        "http://[fe80::1%25eth0]/", "http://[::1/", "http://%31/", "http://" + "a" * 3000,
        "http://127.0.0.1/", "http://[::1]/", "http://[::ffff:8.8.8.8]/", "http://169.254.169.254/",
        "https://10.0.0.1:8443/x",
    ],
)  # fmt: skip
def test_urls_that_are_refused(url):
    with pytest.raises(TargetError):
        check_webhook(hook(url))


def test_urls_that_are_fine():
    assert WebhookTarget.parse("https://bücher.example/x").host == "xn--bcher-kva.example"
    assert WebhookTarget.parse("https://example.com").port == 443
    assert WebhookTarget.parse("http://[2606:4700::1111]:81/").literal == "2606:4700::1111"
    assert WebhookTarget.parse("http://127.0.0.1/", allow_private=True).port == 80


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0.0}, {"timeout": 61.0}, {"timeout": float("nan")}, {"attempts": 0},
        {"attempts": 101}, {"batch": 0}, {"batch": 1001},
    ],
)  # fmt: skip
def test_settings_that_are_refused(options):
    check_webhook(hook("https://example.com/"))
    with pytest.raises(TargetError):
        check_webhook(hook("https://example.com/", **options))
    with pytest.raises(TargetError, match="secret"):
        check_webhook(Webhook(url="https://example.com/", secret="short"))


def test_addresses_in_odd_forms_are_checked_by_what_they_resolve_to():
    """`127.1` and `0x7f000001` are names to us, but addresses to the system's resolver."""

    async def main():
        async with Desk(allow_private=False, resolve=None) as desk:
            for host in ("127.1", "0x7f000001", "2130706433", "localhost"):
                desk.put(host, notification(1))
                desk.sender.start(host, hook(f"http://{host}:1/", attempts=1))
            await until(lambda: len(desk.dead) == 4)
            assert all("not a public address" in letter[4] for letter in desk.dead)

    asyncio.run(main())


def test_a_stored_url_that_is_no_longer_allowed_pauses():
    async def scenario(receiver, desk):
        desk.put("ann", notification(1))
        desk.sender.start("ann", hook(receiver.url))
        await until(lambda: desk.outcomes == [("ann", "paused")])
        said = desk.sender.last_error("ann")
        assert said.startswith("127.0.0.1 is not a public address; boxmatch serve --allow-private")
        assert desk.dead == []
        assert receiver.connections == 0

    run(scenario, allow_private=False)

"""What can be asked about a subscriber: its notifications, and how it receives them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from types import NoneType

from msgspec import UNSET

from boxmatch.client.documents import start_json
from boxmatch.client.exchange import Operation, ask, operation
from boxmatch.errors import ClientError
from boxmatch.wire import requests, responses
from boxmatch.wire.responses import DeadLetter, NotificationPage, Replay, Subscriber, Webhook


class SubscriberOperations:
    """The methods of both clients that are about a subscriber and what it receives."""

    @operation
    def subscriber(self, name: str) -> Operation[Subscriber]:
        """What the broker knows of a subscriber."""
        return ask(Subscriber, "GET /subscribers/{}", name)

    @operation
    def notifications(
        self, subscriber: str, *, after: int | None = None, limit: int = 100, wait: float = 0.0
    ) -> Operation[NotificationPage]:
        """Poll: notifications above `after`, or above the subscriber's cursor. They are not
        acknowledged by this.

        If there are none, the broker waits for one for up to `wait` seconds.
        """
        query = {"after": after, "limit": limit, "wait": wait or None}
        where = "GET /subscribers/{}/notifications"
        return ask(NotificationPage, where, subscriber, query=query, wait=wait)

    @operation
    def acknowledge(
        self,
        subscriber: str,
        sequence: int | None = None,
        *,
        sequences: Sequence[int] | None = None,
    ) -> Operation[int]:
        """All up to this number is done with, or if the subscriber shares its notifications, each
        of some. Returns the cursor, which only a replay sets back.
        """
        if (sequence is None) == (sequences is None):
            raise ClientError("acknowledge takes either a sequence or sequences")
        body = requests.Acknowledgement(
            sequence=UNSET if sequence is None else sequence,
            sequences=UNSET if sequences is None else list(sequences),
        )
        where = "POST /subscribers/{}/acknowledge"
        found = yield from ask(responses.Cursor, where, subscriber, body=body)
        return found.cursor

    @operation
    def share(
        self,
        subscriber: str,
        *,
        ack_seconds: float = 30.0,
        max_deliveries: int = 8,
        max_in_flight: int = 1_000,
    ) -> Operation[Subscriber]:
        """Have the subscriber's notifications shared among all who `work` on them, and acknowledged
        one by one; or change these settings.

        What is not acknowledged within `ack_seconds` is handed out again, and after
        `max_deliveries` it is a dead letter. No more than `max_in_flight` are handed out at a time.
        """
        body = requests.Sharing(
            ack_seconds=ack_seconds, max_deliveries=max_deliveries, max_in_flight=max_in_flight
        )
        return ask(Subscriber, "PUT /subscribers/{}/sharing", subscriber, body=body)

    @operation
    def unshare(self, subscriber: str) -> Operation[None]:
        """Have a cursor alone again. What was acknowledged after a notification that was not is
        delivered again.
        """
        return ask(NoneType, "DELETE /subscribers/{}/sharing", subscriber)

    @operation
    def reject(
        self, subscriber: str, sequences: Sequence[int], *, reason: str = "", delay: float = 0.0
    ) -> Operation[int]:
        """Have notifications that are handed out, handed out again, after `delay` seconds. Returns
        how many of them were.
        """
        body = requests.Rejection(sequences=list(sequences), reason=reason, delay=delay)
        where = "POST /subscribers/{}/reject"
        found = yield from ask(responses.Cursor, where, subscriber, body=body, again=False)
        return found.count or 0

    @operation
    def extend(
        self, subscriber: str, sequences: Sequence[int], *, seconds: float | None = None
    ) -> Operation[int]:
        """Take longer for notifications that are handed out: so many seconds from now, or the
        subscriber's `ack_seconds`. Returns how many of them were.
        """
        body = requests.Extension(sequences=list(sequences), seconds=seconds)
        found = yield from ask(
            responses.Cursor, "POST /subscribers/{}/extend", subscriber, body=body
        )
        return found.count or 0

    @operation
    def replay_events(
        self,
        subscriber: str,
        start: int | datetime | str,
        *,
        through: int | datetime | str | None = None,
        feed: str | None = None,
        subscription: str | None = None,
    ) -> Operation[Replay]:
        """Have events of the log delivered again, from a number or a time on, `through` another or
        all that there are now: those of all feeds or of one, that match the subscriptions which
        there are when they are read, or one of them.

        The cursor goes back to there. Listeners go on from there by themselves. Another replay of
        the same feed and subscription takes the place of this one.
        """
        body = requests.ReplayQuestion(
            replay_from=start_json(start),
            through=start_json(through),
            feed=feed,
            subscription=subscription,
        )
        return ask(Replay, "POST /subscribers/{}/replay", subscriber, body=body)

    @operation
    def cancel_replay(self, subscriber: str) -> Operation[int]:
        """End what `replay_events` began. Returns the cursor."""
        found = yield from ask(responses.Cursor, "DELETE /subscribers/{}/replay", subscriber)
        return found.cursor

    @operation
    def put_webhook(
        self,
        subscriber: str,
        url: str,
        *,
        secret: str | None = None,
        timeout: float = 10.0,
        attempts: int = 8,
        batch: int = 100,
        cloudevents: requests.CloudEventsMode | None = None,
        paused: bool = False,
    ) -> Operation[Webhook]:
        """Have the subscriber's notifications posted to an address, signed with a secret: as JSON
        of their own, or as CloudEvents in one of their modes.

        Without a secret the broker makes one, which only the answer to this call shows.
        """
        wanted = requests.NewWebhook(
            url=url,
            secret=secret,
            timeout=timeout,
            attempts=attempts,
            batch=batch,
            cloudevents=cloudevents,
            paused=paused,
        )
        return ask(Webhook, "PUT /subscribers/{}/webhook", subscriber, body=wanted)

    @operation
    def webhook(self, subscriber: str) -> Operation[Webhook]:
        """Where the subscriber's notifications are posted to."""
        return ask(Webhook, "GET /subscribers/{}/webhook", subscriber)

    @operation
    def delete_webhook(self, subscriber: str) -> Operation[None]:
        """Post no more notifications."""
        return ask(NoneType, "DELETE /subscribers/{}/webhook", subscriber)

    @operation
    def dead_letters(
        self, subscriber: str, *, after: int = 0, limit: int = 100
    ) -> Operation[list[DeadLetter]]:
        """What the subscriber's webhook did not take, or was handed out too often."""
        query = {"after": after, "limit": limit}
        where = "GET /subscribers/{}/dead-letters"
        found = yield from ask(responses.DeadLetters, where, subscriber, query=query)
        return found.dead_letters

    @operation
    def replay(self, subscriber: str, numbers: Sequence[int] | None = None) -> Operation[int]:
        """Post dead letters, these or all, to the webhook again; or hand them out again, if the
        subscriber shares its notifications. Returns how many.
        """
        body = requests.Numbers(numbers=None if numbers is None else list(numbers))
        where = "POST /subscribers/{}/dead-letters/replay"
        found = yield from ask(responses.Replayed, where, subscriber, body=body, again=False)
        return found.replayed

/** Where there is nothing to see: a sentence, and the command that makes something. */

import { command } from "./api.js";
import { showEmpty } from "./dom.js";
import { exampleEvent, exampleFilters } from "./schemas.js";

export function showNoFeeds(node, { roles }, title = "No feeds yet") {
  if (roles.admin) {
    const example = '{"name": "ticks", "schema": {"symbol": "string", "price": "float", "volume": "int"}}';
    showEmpty(node, title, "Create one with:", command("feeds", example));
  } else {
    showEmpty(node, "This key may not see any feed",
      "Its subscriptions are in the other sections. To see a feed, use a key that may publish to it or read it:",
      "boxmatch admin keys create LABEL --read FEED");
  }
}

/** `attributes` as of `attributesOf`. */
export function showNoEvents(node, feed, attributes) {
  const event = attributes.length > 0 ? exampleEvent(attributes) : { price: 1.5 };
  showEmpty(node, "No events yet", "Publish one in the section Trace, or with:", command(`feeds/${feed}/events`, JSON.stringify(event)));
}

export function showNoSubscriptions(node, feed, attributes) {
  const filter = exampleFilters(attributes)[0] ?? "price >= 0";
  showEmpty(node, `No subscriptions to ${feed} yet`, "Create one with:",
    command("subscribers/alice/subscriptions/first", JSON.stringify({ feed, filter }), " -X PUT"));
}

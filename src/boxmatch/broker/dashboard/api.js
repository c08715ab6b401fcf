/** Requests to the broker, with the key that was entered. */

const SLOT = "boxmatch-key";
const TIMEOUT_MS = 15_000;

let key = read();

function read() {
  try {
    return sessionStorage.getItem(SLOT);
  } catch {
    return null; // storage is switched off: the key lives as long as the page
  }
}

export const hasKey = () => key !== null;

export function setKey(wanted) {
  key = wanted;
  try {
    if (wanted === null) sessionStorage.removeItem(SLOT);
    else sessionStorage.setItem(SLOT, wanted);
  } catch {
    // See above.
  }
}

/** A request to try at a terminal. Behind a proxy the page may have a path of its own. */
export function command(path, body, options = "") {
  const address = new URL(path, document.baseURI).href;
  const authorized = hasKey() ? ` -H "Authorization: Bearer $BOXMATCH_KEY"` : "";
  return `curl${options} ${address}${authorized} --json '\n  ${body}'`;
}

/** The broker said no. `problem` is what it answered; status 0: it did not answer at all. */
export class ApiError extends Error {
  constructor(status, message, problem = {}) {
    super(message);
    this.status = status;
    this.problem = problem;
  }
}

async function request(path, { body, signal } = {}) {
  const headers = {};
  if (key !== null) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  let response;
  let text;
  try {
    response = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      cache: "no-store",
      credentials: "omit",
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, timeout.aborted ? "the broker did not respond in time" : "the broker does not respond");
  }
  const answer = parsed(text);
  if (!response.ok) {
    throw new ApiError(response.status, answer?.detail ?? `the broker responded with ${response.status}`, answer ?? {});
  }
  if (answer === undefined) throw new ApiError(response.status, "the response is not from a broker");
  return answer;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const named = (feed) => `feeds/${encodeURIComponent(feed)}`;

export const overview = () => request("overview");
export const history = () => request("overview/history");
export const feed = (name, signal) => request(named(name), { signal });
export const subscriber = (name) => request(`subscribers/${encodeURIComponent(name)}`);
export const events = (name, after, signal) => request(`${named(name)}/events?after=${after}&limit=1`, { signal });
export const subscriptions = (name, order, signal) =>
  request(`${named(name)}/subscriptions?order=${order}&limit=20`, { signal });
export const dryRun = (name, filter, dialect, signal) =>
  request(`${named(name)}/dry-run`, { body: { filter, dialect, recent: 25 }, signal });
export const trace = (name, event, publish, signal) =>
  request(`${named(name)}/trace`, { body: { event, publish, limit: 20 }, signal });

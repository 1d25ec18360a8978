// A client of Drossel's JSON API, which never lets a request fail because Drossel does.

import * as http from "node:http";
import * as https from "node:https";
import type { Answer, Outcome, Question, Together } from "./wire.js";

export type * from "./wire.js";

export interface Options {
  /** Where Drossel answers: "http://127.0.0.1:7080", "https://...", or "unix:/run/drossel/drossel.sock". */
  url: string;
  /** What is in token_file of the policy, if there is one. */
  token?: string;
  /** How many milliseconds a request waits for its decision at most; 25 unless said. */
  deadline?: number;
  /**
   * What becomes of a request whose question has no answer: "allow" unless said. A function chooses for
   * each; what it throws, decide throws.
   */
  onUnavailable?: OnUnavailable;
  /** Is told of every call without an answer. Unless said, a warning is printed, every ten seconds at most. */
  onError?: (error: DrosselError) => void;
}

export type OnUnavailable =
  | "allow"
  | "deny"
  | ((error: DrosselError, question: Question | Together) => "allow" | "deny" | Promise<"allow" | "deny">);

/** An answer of Drossel, or what stands for it if there is none: then it has the error, and its id is "". */
export type Decision = Answer & { error?: DrosselError };

/** A call had no answer: Drossel cannot be reached, is late, or refused the call. */
export class DrosselError extends Error {
  override name = "DrosselError";
  /** Of Drossel's answer, if there was one: 400 is a mistake in the question, 401 one in the token. */
  status?: number;
  /** Where in the question the mistake is. */
  pointer?: string;
}

/** A request that was decided about and runs. */
export interface Started {
  decision: Decision;
  /** The client went away while the request was held: do nothing for it. */
  abandoned: boolean;
  /** Says how the request ended, if Drossel wants to know. It never throws, and only its first call counts. */
  end(outcome?: Outcome): Promise<void>;
}

/** How long a settle or renew may take, milliseconds: no request waits for it. */
const patience = 1000;

/** Makes a client. One is enough for a process; it keeps its connections. */
export function createClient(options: Options): Client {
  return new Client(options);
}

export class Client {
  readonly #send: Send;
  readonly #headers: Record<string, string>;
  readonly #deadline: number;
  readonly #onUnavailable: OnUnavailable;
  readonly #onError: (error: DrosselError) => void;

  /** Lets idle connections go. */
  readonly close: () => void;

  constructor({ url, token, deadline = 25, onUnavailable = "allow", onError = warnings() }: Options) {
    if (!(deadline > 0 && deadline < 2 ** 31)) throw new TypeError(`drossel: deadline ${deadline} is not a number of milliseconds`);
    if (onUnavailable !== "allow" && onUnavailable !== "deny" && typeof onUnavailable !== "function") {
      throw new TypeError(`drossel: onUnavailable is "allow", "deny" or a function, not ${JSON.stringify(onUnavailable)}`);
    }
    this.#headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
    [this.#deadline, this.#onUnavailable, this.#onError] = [deadline, onUnavailable, onError];
    [this.#send, this.close] = "Bun" in globalThis ? overFetch(...place(url)) : overHTTP(...place(url));
  }

  /** Asks about one request, one limit, or several together. */
  async decide(question: Question | Together): Promise<Decision> {
    try {
      const answer = await this.#call<Answer>("/v1/decide", question, this.#deadline);
      return typeof answer.allowed === "boolean" ? answer : this.#fail(new DrosselError("what answers is not Drossel"));
    } catch (error) {
      return this.#without(error as DrosselError, question);
    }
  }

  /** Asks about up to 100 requests or limits, each for itself, in their order. */
  async batch(questions: Question[]): Promise<Decision[]> {
    if (questions.length === 0) return [];
    try {
      const { answers } = await this.#call<{ answers: Answer[] }>("/v1/decide", { requests: questions }, this.#deadline);
      return answers?.length === questions.length ? answers : this.#fail(new DrosselError("what answers is not Drossel"));
    } catch (error) {
      return Promise.all(questions.map(q => this.#without(error as DrosselError, q)));
    }
  }

  /** Says how an allowed request ended; true if that was news. It never throws. */
  async settle(id: string, outcome: Outcome = {}): Promise<boolean> {
    return this.#call<{ settled: boolean }>("/v1/settle", { id, ...outcome }, Math.max(patience, this.#deadline)).then(a => a.settled, () => false);
  }

  /** Keeps the place in flight of a request that is still running; false if it is not known to be kept. It never throws. */
  async renew(id: string): Promise<boolean> {
    return this.#call<{ renewed: boolean }>("/v1/renew", { id }, Math.max(patience, this.#deadline)).then(a => a.renewed, () => false);
  }

  /**
   * Decides about a request that runs until end is called: holds it for as long as its decision says, or
   * until gone, and keeps its place in flight.
   */
  async start(question: Question | Together, gone?: () => AbortSignal | undefined): Promise<Started> {
    const decision = await this.decide(question);
    const { id, delay_ms, settle_within_ms, renew_every_ms } = decision;
    let held = settle_within_ms !== undefined;
    const renewing = held && renew_every_ms ? setInterval(() => void this.renew(id), renew_every_ms) : undefined;
    const end = async (outcome?: Outcome) => {
      clearInterval(renewing);
      const now = held;
      held = false;
      if (now) await this.settle(id, outcome);
    };
    const abandoned = !!delay_ms && !(await pause(delay_ms, gone?.()));
    if (abandoned) void end({ unserved: true });
    return { decision, abandoned, end };
  }

  async #call<T>(path: string, body: unknown, within: number): Promise<T> {
    try {
      const { status, text } = await this.#send(path, JSON.stringify(body), this.#headers, within);
      if (status === 200) return JSON.parse(text);
      const { detail, hint, pointer } = JSON.parse(text);
      throw Object.assign(new DrosselError([`${detail ?? `status ${status}`}`, hint].filter(Boolean).join("; ")), { status, pointer });
    } catch (error) {
      return this.#fail(error instanceof DrosselError ? error : new DrosselError(reason(error, within), { cause: error }));
    }
  }

  #fail(error: DrosselError): never {
    try {
      this.#onError(error);
    } catch {} // an observer stops no request
    throw error;
  }

  async #without(error: DrosselError, question: Question | Together): Promise<Decision> {
    const choice = typeof this.#onUnavailable === "function" ? await this.#onUnavailable(error, question) : this.#onUnavailable;
    return choice === "deny" ? closed(error) : { id: "", allowed: true, status: 200, by: "open", headers: {}, limits: [], error };
  }
}

/** What Drossel says when its store is down and the route says closed. */
function closed(error: DrosselError): Decision {
  const message = "Requests cannot be counted for now. Try again in 1 second.";
  const [status, code] = [503, "RATE_LIMITER_UNAVAILABLE" as const];
  return {
    id: "", allowed: false, status, code, by: "closed", retry_after_ms: 1000, limits: [], error,
    headers: { "Cache-Control": "no-store", "Content-Type": "application/problem+json", "Retry-After": "1" },
    body: {
      type: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
      title: "Temporarily reduced capacity", status, detail: message, error: { code, message, retry_after: 1 },
    },
  };
}

/** The body of a denial as it is sent. */
export function bodyText({ body, headers }: Answer): string | undefined {
  const asIs = typeof body === "string" && !headers["Content-Type"]?.includes("json");
  return asIs ? (body as string) : JSON.stringify(body);
}

type Send = (path: string, body: string, headers: Record<string, string>, within: number) => Promise<{ status: number; text: string }>;

/** Where a URL leads: the URL to ask, and the path of a socket if it is there. */
function place(url: string): [at: URL, socket: string | undefined] {
  if (/^unix:\/?[^/]/.test(url)) return [new URL("http://drossel"), url.slice("unix:".length)];
  const at = URL.canParse?.(url) === false ? undefined : new URL(url);
  if (at?.protocol !== "http:" && at?.protocol !== "https:") {
    throw new TypeError(`drossel: url ${JSON.stringify(url)} is not such as "http://127.0.0.1:7080" or "unix:/run/drossel/drossel.sock"`);
  }
  at.pathname = at.pathname.replace(/\/$/, "");
  return [at, undefined];
}

function overFetch(at: URL, socket?: string): [Send, () => void] {
  const base = at.href.replace(/\/$/, "");
  const send: Send = async (path, body, headers, within) => {
    const init = { method: "POST", body, headers, signal: AbortSignal.timeout(within), unix: socket };
    const res = await fetch(base + path, init);
    return { status: res.status, text: await res.text() };
  };
  return [send, () => {}];
}

/** fetch of Node knows no unix sockets, and costs more. */
function overHTTP(at: URL, socket?: string): [Send, () => void] {
  const { Agent, request } = at.protocol === "https:" ? https : http;
  const agent = new Agent({ keepAlive: true, timeout: 60_000 }); // Drossel lets an idle connection go after five minutes
  const send: Send = (path, body, headers, within) =>
    new Promise((resolve, reject) => {
      const where = { host: at.hostname.replace(/^\[|\]$/g, ""), port: at.port, socketPath: socket, path: at.pathname.replace(/\/$/, "") + path };
      const req = request({ ...where, agent, method: "POST", headers: { ...headers, "Content-Length": Buffer.byteLength(body) } }, res => {
        let text = "";
        res.setEncoding("utf8").on("data", part => (text += part)).on("error", reject);
        res.on("end", () => (clearTimeout(timer), resolve({ status: res.statusCode ?? 0, text })));
      });
      const late = Object.assign(new Error(), { name: "TimeoutError" });
      const timer = setTimeout(() => req.destroy(late), within);
      req.on("error", error => (clearTimeout(timer), reject(error))).end(body);
    });
  return [send, () => agent.destroy()];
}

function reason(error: unknown, within: number): string {
  const { name, message, code } = error as { name?: string; message?: string; code?: string };
  return name === "TimeoutError" ? `no answer within ${within} ms` : message || code || String(error);
}

/** Prints the first error and then one every ten seconds, with how many there were. */
function warnings(): (error: DrosselError) => void {
  let last = -Infinity, more = 0;
  return error => {
    if (performance.now() - last < 10_000) return void more++;
    console.warn(`drossel: ${error.message}${more ? ` (and ${more} errors before)` : ""}`);
    [last, more] = [performance.now(), 0];
  };
}

/** Waits, and says whether it did to the end. */
function pause(ms: number, gone?: AbortSignal): Promise<boolean> {
  return new Promise(resolve => {
    const stop = () => (clearTimeout(timer), resolve(false));
    const timer = setTimeout(() => (gone?.removeEventListener("abort", stop), resolve(true)), ms);
    if (gone?.aborted) stop();
    else gone?.addEventListener("abort", stop, { once: true });
  });
}

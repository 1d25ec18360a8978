// What the adapters of the frameworks share.

import { Client, type Options, type Started } from "./index.js";

/** Attributes of the policy by their names. What is undefined or null there is none of. */
export type Attributes = Record<string, string | number | null | undefined>;

/** Options of an adapter; C is what its framework knows a request by. Either url or client is needed. */
export interface AdapterOptions<C> extends Partial<Options> {
  /** A client of yours, instead of one by the other options. */
  client?: Pick<Client, "start">;
  /** Who asks, as your own code knows. */
  attributes?: (c: C) => Attributes | undefined | Promise<Attributes | undefined>;
  /** The address of the client; unless said, what the framework takes for it, which behind a proxy must be told. */
  ip?: (c: C) => string | undefined;
  /** Names of header fields that the policy reads, such as x-api-key. No others leave your process. */
  headers?: string[];
}

/** A request as a framework sees it. */
export interface Incoming {
  method: string;
  /** As it was sent, or a whole URL. */
  url: string;
  host?: string | null;
  ip?: string;
  header(name: string): string | string[] | null | undefined;
}

/** Returns what asks about a request, with a client of its own if there is none. */
export function adapter<C>(options: AdapterOptions<C>) {
  const { url, attributes, ip, headers = [] } = options;
  if (!options.client && !url) throw new TypeError("drossel: there is neither url nor client");
  const client = options.client ?? new Client(options as Options);

  return async (c: C, incoming: Incoming, gone: () => AbortSignal | undefined): Promise<Started> => {
    const given: Record<string, string> = {};
    for (const [name, value] of Object.entries((await attributes?.(c)) ?? {})) given[name] = String(value ?? "");
    const sent: Record<string, string | string[]> = {};
    for (const name of headers) {
      const value = incoming.header(name);
      if (value != null) sent[name] = value;
    }
    return client.start(
      {
        method: incoming.method,
        path: incoming.url.replace(/^[a-z]+:\/\/[^/?#]*/i, "").replace(/^(?=\?|$)/, "/"),
        ...(incoming.host && { host: incoming.host }),
        ip: ip ? ip(c) : incoming.ip,
        headers: sent,
        attributes: given,
      },
      gone,
    );
  };
}

/** The same response, which tells when its body was sent or given up. */
export function watched(res: Response, ended: () => void): Response {
  if (res.body) return new Response(watchedBody(res.body, ended), res);
  ended();
  return res;
}

export function watchedBody(body: ReadableStream<Uint8Array>, ended: () => void): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream({
    async pull(out) {
      try {
        const { done, value } = await reader.read();
        if (!done) return out.enqueue(value);
        ended();
        out.close();
      } catch (error) {
        ended();
        out.error(error);
      }
    },
    cancel(reason) {
      ended();
      return reader.cancel(reason);
    },
  });
}

/** A signal that an answer over node:http was sent, or its client went away. */
export function closing(res: { once(event: "close", listener: () => void): unknown }): AbortSignal {
  const closed = new AbortController();
  res.once("close", () => closed.abort());
  return closed.signal;
}

/** Says how a request over node:http ended, once it has. Without a status nobody knows what it did. */
export function endWith(closed: AbortSignal, res: { headersSent: boolean; statusCode: number }, end: Started["end"]) {
  const ended = () => void end(res.headersSent ? { status: res.statusCode } : {});
  if (closed.aborted) ended();
  else closed.addEventListener("abort", ended, { once: true });
}

// What every adapter must do, told by what clients of an app see.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { AdapterOptions } from "@drossel/client/adapter";
import { Drossel, Recorder, until } from "./drossel.js";

const policy = `
identity:
  attributes:
    user: given
    key: {from: header.x-api-key}
limits:
  write:  3/h by user|ip
  login:  {rate: 2/h sliding_log, by: ip, charge_on: [401]}
  export: 1 in flight by ip
  held:   1/h burst 1 wait 2h by ip
  keyed:  1/h by key+ip
  hosts:  1/h by ip
  load:   1000000/h by ip
routes:
  POST /orders: {limits: [write]}
  POST /login: {limits: [login]}
  GET /export: {limits: [export]}
  GET /held: {limits: [held]}
  GET /keyed: {limits: [keyed]}
  GET /search: {limits: [hosts]}
  GET /load: {limits: [load]}
  /: unlimited
`;

export interface App {
  url: string;
  close(): unknown;
}

/** What every app does. A stream sends its first part at once and its second one when it is released. */
export interface Handlers {
  ran: string[];
  released: Promise<void>;
}

/** Reads the user that a test speaks for. */
export const user = (request: { headers: Headers }) => ({ user: request.headers.get("x-user") });

/** The body of GET /export. */
export async function* parts(h: Handlers): AsyncGenerator<Uint8Array> {
  yield new TextEncoder().encode("first ");
  await h.released;
  yield new TextEncoder().encode("second");
}

export function suite(name: string, start: (options: Pick<AdapterOptions<never>, "client" | "headers">, h: Handlers) => Promise<App>) {
  const served = async (options: { deadline?: number; onUnavailable?: "allow" | "deny" }, use: (s: Served) => Promise<void>, on: "unix" | "tcp" = "unix") => {
    const drossel = await Drossel.start(on, policy);
    const client = new Recorder({ url: drossel.url, ...options });
    let release = () => {};
    const handlers: Handlers = { ran: [], released: new Promise<void>(r => (release = r)) };
    const app = await start({ client, headers: ["x-api-key"] }, handlers);
    try {
      await use({ drossel, client, handlers, release: () => release(), url: app.url });
    } finally {
      release();
      await app.close();
      client.close();
      await drossel.stop();
    }
  };

  test(`${name}: a burst passes, and then a denial is as Drossel has it`, () =>
    served({}, async ({ client, handlers, url }) => {
      const order = (who: string) => fetch(`${url}/orders?page=1`, { method: "POST", headers: { "x-user": who } });
      for (const left of [2, 1, 0]) {
        const res = await order("u1");
        assert.deepEqual([res.status, await res.text()], [201, "ordered"]);
        assert.match(res.headers.get("RateLimit") ?? "", new RegExp(`^"write";r=${left};t=\\d+$`));
        hasFields(res, client.seen.at(-1)!.headers);
      }
      const res = await order("u1");
      const decision = client.seen.at(-1)!;
      assert.equal(res.status, 429);
      hasFields(res, decision.headers);
      assert.equal(res.headers.get("Content-Type"), "application/problem+json");
      assert.match(res.headers.get("Retry-After") ?? "", /^[1-9]\d*$/);
      assert.match(res.headers.get("RateLimit") ?? "", /^"write";r=0;t=[1-9]\d*$/);
      const body = (await res.json()) as any;
      assert.deepEqual([body.id, body.error.code, decision.route, decision.limits[0]!.key], [decision.id, "RATE_LIMITED", "POST /orders", "user"]);
      assert.deepEqual(body, decision.body);
      assert.deepEqual(handlers.ran, ["orders", "orders", "orders"]);
      assert.equal((await order("u2")).status, 201);
      assert.equal((await order("")).status, 201);
      assert.equal(client.seen.at(-1)!.limits[0]!.key, "ip"); // an undefined user is none
    }));

  test(`${name}: header fields that are asked for, the query, HEAD and what is unlimited`, () =>
    served({}, async ({ client, url }) => {
      const keyed = (key: string) => fetch(`${url}/keyed`, { headers: { "X-Api-Key": key, "X-Other": "x" } }).then(r => r.status);
      assert.deepEqual([await keyed("a"), await keyed("a"), await keyed("b")], [200, 429, 200]);
      assert.equal((await fetch(`${url}/search?q=a%20b`)).status, 200);
      const denied = await fetch(`${url}/search`, { method: "HEAD" });
      assert.deepEqual([denied.status, await denied.text()], [429, ""]);
      hasFields(denied, client.seen.at(-1)!.headers);
      const free = await fetch(`${url}/free`);
      assert.deepEqual([free.status, await free.text(), free.headers.get("RateLimit")], [200, "free", null]);
    }));

  test(`${name}: the status says what a request is charged`, () =>
    served({}, async ({ client, url }) => {
      const login = (status: number) => fetch(`${url}/login?status=${status}`, { method: "POST" }).then(async r => (await r.text(), r.status));
      const left = async () => (await client.decide({ method: "POST", path: "/login", ip: "127.0.0.1", peek: true })).limits[0]!.remaining;
      const backTo = (n: number) => until(`${n} left of login`, async () => (await left()) === n);
      for (const status of [200, 302, 500, 204]) {
        assert.equal(await login(status), status);
        await backTo(2);
      }
      assert.equal(await login(599), 500); // it throws
      await backTo(2);
      assert.deepEqual([await login(401), await login(401), await login(401)], [401, 401, 429]);
      assert.equal(await left(), 0);
    }, "tcp"));

  test(`${name}: a place in flight is free when the response has been sent, or its client has gone`, () =>
    served({}, async ({ client, handlers, release, url }) => {
      const free = () => client.decide({ method: "GET", path: "/export", ip: "127.0.0.1", peek: true }).then(d => d.allowed);
      const given = new AbortController();
      const gone = await fetch(`${url}/export`, { signal: given.signal });
      assert.equal(await firstPart(gone), "first ");
      const denied = await fetch(`${url}/export`);
      assert.deepEqual([denied.status, ((await denied.json()) as any).error.code], [429, "TOO_MANY_IN_FLIGHT"]);
      given.abort();
      release(); // a source that says nothing cannot be told that nobody reads
      await until("a place after the client has gone", free);

      let go = () => {};
      handlers.released = new Promise<void>(r => (go = r));
      const res = await fetch(`${url}/export`);
      const reader = res.body!.getReader();
      assert.equal(new TextDecoder().decode((await reader.read()).value), "first ");
      for (let i = 0; i < 20; i++) assert.equal(await free(), false);
      go();
      assert.equal(new TextDecoder().decode((await reader.read()).value), "second");
      assert.equal((await reader.read()).done, true);
      await until("a place after the response", free);
    }));

  test(`${name}: a held request that is given up is not charged`, () =>
    served({}, async ({ client, handlers, url }) => {
      const left = async () => (await client.decide({ method: "GET", path: "/held", ip: "127.0.0.1", peek: true })).limits[0]!;
      assert.equal((await fetch(`${url}/held`)).status, 200);
      const before = (await left()).reset_after_ms!;
      const given = new AbortController();
      const held = fetch(`${url}/held`, { signal: given.signal }).then(() => "answered", () => "given up");
      await until("held", () => client.seen.some(d => d.settle_within_ms !== undefined && d.delay_ms! > 60_000));
      assert.ok((await left()).reset_after_ms! > before, "it was not charged");
      given.abort();
      assert.equal(await held, "given up");
      await until("given back", async () => (await left()).reset_after_ms! <= before);
      assert.deepEqual(handlers.ran, ["held"]);
    }));

  for (const mode of ["allow", "deny"] as const) {
    test(`${name}: Drossel is killed under load and comes back: ${mode}`, () =>
      served({ onUnavailable: mode }, async ({ drossel, client, url }) => {
        const answers = new Map<string, number>();
        let over = false;
        const workers = Array.from({ length: 8 }, async () => {
          while (!over) {
            const res = await fetch(`${url}/load`);
            const body = await res.text();
            const answer = `${res.status} ${res.ok ? body : `${res.headers.get("Retry-After")} ${JSON.parse(body).error.code}`}`;
            answers.set(answer, (answers.get(answer) ?? 0) + 1);
          }
        });
        const decided = (how: (d: (typeof client.seen)[0]) => boolean) => {
          const from = client.seen.length;
          return until("50 more decisions", () => client.seen.slice(from).filter(how).length >= 50);
        };
        try {
          await decided(d => d.by === "store");
          await drossel.kill();
          await decided(d => !!d.error && d.allowed === (mode === "allow"));
          await drossel.again();
          await decided(d => d.by === "store");
          const from = client.seen.length;
          await until("200 more", () => client.seen.length >= from + 200);
          assert.deepEqual(client.seen.slice(from).filter(d => d.error), []);
        } finally {
          over = true;
          await Promise.all(workers);
        }
        const expected = mode === "allow" ? ["200 loaded"] : ["200 loaded", "503 1 RATE_LIMITER_UNAVAILABLE"];
        assert.deepEqual([...answers.keys()].sort(), expected);
      }));
  }
}

interface Served {
  drossel: Drossel;
  client: Recorder;
  handlers: Handlers;
  release(): void;
  url: string;
}

function hasFields(res: Response, fields: Record<string, string>) {
  for (const [name, value] of Object.entries(fields)) assert.equal(res.headers.get(name), value, name);
}

async function firstPart(res: Response): Promise<string> {
  const reader = res.body!.getReader();
  const { value } = await reader.read();
  reader.releaseLock();
  return new TextDecoder().decode(value);
}

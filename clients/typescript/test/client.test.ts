import assert from "node:assert/strict";
import { createServer, connect, type AddressInfo, type Server, type Socket } from "node:net";
import { rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { createClient, DrosselError, type Options } from "@drossel/client";
import { Recorder, until, withDrossel } from "./drossel.js";

const policy = `
identity: {attributes: {user: given, tenant: given}}
limits:
  write:  3/h by user|ip
  tokens: {rate: 1000/h, by: tenant}
  export: 1 in flight for 6s by ip
routes:
  POST /orders: {limits: [write]}
  GET /export: {limits: [export]}
`;

const order = { method: "POST", path: "/orders", ip: "203.0.113.7" };

for (const on of ["unix", "tcp"] as const) {
  test(`decide, settle, renew and batch over ${on}`, () =>
    withDrossel(on, policy, async drossel => {
      const client = new Recorder({ url: drossel.url });

      const first = await client.decide({ ...order, attributes: { user: "u_81" } });
      assert.deepEqual([first.allowed, first.status, first.route, first.by, first.limits[0]?.remaining], [true, 200, "POST /orders", "store", 2]);

      const tokens = await client.decide({ limit: "tokens", cost: 900, settle: true, attributes: { tenant: "acme" } });
      assert.deepEqual([tokens.allowed, tokens.limits[0]?.remaining], [true, 100]);
      assert.equal(await client.settle(tokens.id, { cost: 400 }), true);
      assert.equal(await client.settle(tokens.id, { cost: 400 }), false);
      const left = await client.decide({ limit: "tokens", cost: 0, peek: true, attributes: { tenant: "acme" } });
      assert.ok(left.limits[0]!.remaining >= 600, `${left.limits[0]!.remaining} left`);

      const place = await client.decide({ ...order, method: "GET", path: "/export" });
      assert.equal(await client.renew(place.id), true);
      assert.equal(await client.renew("d-0000000000"), false);

      const answers = await client.batch([
        { ...order, attributes: { user: "u_82" } },
        { limit: "tokens", cost: 5000, attributes: { tenant: "acme" } },
      ]);
      assert.deepEqual(answers.map(a => [a.allowed, a.limit]), [[true, "write"], [false, "tokens"]]);
      assert.equal(answers[1]!.retry_after_ms, undefined); // no wait will do
      assert.deepEqual(await client.batch([]), []);

      const both = await client.decide({ together: true, requests: [{ ...order, attributes: { user: "u_82" } }, { limit: "tokens", cost: 5000, attributes: { tenant: "acme" } }] });
      assert.deepEqual([both.allowed, both.limits.map(l => l.requests)], [false, [[0], [1]]]);
      client.close();
    }));
}

test("a place in flight is kept for as long as the request runs", () =>
  withDrossel("unix", policy, async drossel => {
    const client = new Recorder({ url: drossel.url });
    let renewed = 0;
    client.renew = async id => ((renewed += Number(await Recorder.prototype.renew.call(client, id))), true);
    const { decision, end } = await client.start({ ...order, method: "GET", path: "/export" });
    assert.equal(decision.renew_every_ms, 2000);
    await until("three renewals", () => renewed >= 3); // without, the place would be lost by then
    assert.equal((await client.decide({ ...order, method: "GET", path: "/export" })).allowed, false);
    await Promise.all([end(), end()]);
    assert.equal((await client.decide({ ...order, method: "GET", path: "/export", peek: true })).allowed, true);
    client.close();
  }));

test("a token", async () => {
  const file = join(tmpdir(), `drossel-token-${process.pid}`);
  writeFileSync(file, "a-token-of-this-test-0123\n", { mode: 0o600 });
  await withDrossel("tcp", policy, async drossel => {
    const right = new Recorder({ url: `${drossel.url}/`, token: "a-token-of-this-test-0123" });
    assert.equal((await right.decide(order)).by, "store");
    const wrong = await new Recorder({ url: drossel.url, token: "another" }).decide(order);
    assert.deepEqual([wrong.allowed, wrong.by, wrong.error?.status], [true, "open", 401]);
    assert.match(wrong.error!.message, /^the token is not the right one; send Authorization/);
  }, `, token_file: ${file}`).finally(() => rmSync(file));
});

test("a question that is wrong has no answer, and says why", () =>
  withDrossel("unix", policy, async drossel => {
    const told: DrosselError[] = [];
    const client = new Recorder({ url: drossel.url, onUnavailable: "deny", onError: error => told.push(error) });
    const decision = await client.decide({ ...order, attributes: { usr: "u_81" } });
    assert.deepEqual([decision.allowed, decision.status, decision.error?.status, decision.error?.pointer], [false, 503, 400, "/attributes/usr"]);
    assert.equal(decision.error!.message, 'the policy has no attribute "usr"; did you mean "user"?');
    assert.deepEqual(told, [decision.error]);
    const both = await client.batch([order, { limit: "tokns" }]);
    assert.deepEqual(both.map(d => d.error?.pointer), ["/requests/1/limit", "/requests/1/limit"]);
  }));

test("deny says what Drossel says without its store", () =>
  withDrossel("unix", "identity: {secret: none}\nstore: {url: \"redis://127.0.0.1:1\"}\nlimits: {write: 3/h by ip}\nroutes:\n  /: {limits: [write], on_store_failure: closed}\n", async drossel => {
    const client = new Recorder({ url: drossel.url, onUnavailable: "deny" });
    const { id, route, ...theirs } = await client.decide(order);
    assert.equal(theirs.by, "closed");
    delete (theirs.body as { id?: string }).id;
    await drossel.kill();
    const { id: none, error, ...ours } = await client.decide(order);
    assert.deepEqual([id.length, route, none], [12, "/", ""]);
    assert.ok(error instanceof DrosselError);
    assert.deepEqual(ours, theirs);
  }));

test("Drossel hangs: 25 ms and no longer, unless said", () =>
  withDrossel("unix", policy, async drossel => {
    const client = createClient({ url: drossel.url, onError: () => {} });
    await until("an answer in time", async () => !(await client.decide({ ...order, peek: true })).error);
    drossel.signal("SIGSTOP");
    const late = async () => (await client.decide({ ...order, peek: true })).error?.message === "no answer within 25 ms";
    await until("it has stopped", late);
    const { allowed, by, error } = await client.decide(order);
    assert.deepEqual([allowed, by, error?.message], [true, "open", "no answer within 25 ms"]);
    assert.equal((await new Recorder({ url: drossel.url, deadline: 30 }).decide(order)).error?.message, "no answer within 30 ms");
    drossel.signal("SIGCONT");
    await until("an answer again", async () => !(await client.decide({ ...order, peek: true })).error);
  }));

test("onUnavailable may be a function", async () => {
  const url = "http://127.0.0.1:1"; // nobody is there
  const asked: unknown[] = [];
  const some = new Recorder({ url, onUnavailable: async (error, q) => (asked.push(error.status, q), "path" in q && q.path === "/login" ? "deny" : "allow") });
  assert.equal((await some.decide({ ...order, path: "/login" })).status, 503);
  assert.equal((await some.decide(order)).allowed, true);
  assert.deepEqual((await some.batch([order, { ...order, path: "/login" }])).map(d => d.allowed), [true, false]);
  assert.deepEqual(asked.slice(0, 2), [undefined, { ...order, path: "/login" }]);
  const throws = new Recorder({ url, onUnavailable: error => { throw error; } });
  await assert.rejects(throws.decide(order), DrosselError);
  assert.deepEqual([await throws.settle("d-0000000000"), await throws.renew("d-0000000000")], [false, false]);
});

test("something else than Drossel answers", async () => {
  const server = createServer(socket => socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")));
  const url = await listening(server);
  for (const call of [() => new Recorder({ url }).decide(order), async () => (await new Recorder({ url }).batch([order]))[0]!]) {
    const { allowed, error } = await call();
    assert.deepEqual([allowed, error?.message], [true, "what answers is not Drossel"]);
  }
  server.close();
});

test("errors are printed, and not each of them", async () => {
  const printed: unknown[] = [];
  const { warn } = console;
  console.warn = (...line) => void printed.push(...line);
  try {
    const client = createClient({ url: "http://127.0.0.1:1", deadline: 20_000 });
    for (let i = 0; i < 5; i++) await client.decide(order);
  } finally {
    console.warn = warn;
  }
  assert.equal(printed.length, 1);
  assert.match(String(printed[0]), /^drossel: .*connect/i);
});

test("options that are wrong", () => {
  const wrong: [Options, string][] = [
    [{ url: "127.0.0.1:7080" }, 'drossel: url "127.0.0.1:7080" is not such as "http://127.0.0.1:7080" or "unix:/run/drossel/drossel.sock"'],
    [{ url: "unix:" }, 'drossel: url "unix:" is not such as "http://127.0.0.1:7080" or "unix:/run/drossel/drossel.sock"'],
    [{ url: "http://x", deadline: 0 }, "drossel: deadline 0 is not a number of milliseconds"],
    [{ url: "http://x", onUnavailable: "open" as "allow" }, 'drossel: onUnavailable is "allow", "deny" or a function, not "open"'],
  ];
  for (const [options, message] of wrong) assert.throws(() => createClient(options), { name: "TypeError", message });
});

for (const on of ["unix", "tcp"] as const) {
  test(`connections are kept over ${on}`, () =>
    withDrossel(on, policy, async drossel => {
      let connections = 0;
      const between = createServer(socket => {
        connections++;
        const path = drossel.url.replace(/^unix:/, "");
        const other: Socket = on === "unix" ? connect(path) : connect(Number(new URL(path).port), "127.0.0.1");
        socket.pipe(other).pipe(socket);
        for (const s of [socket, other]) s.on("error", () => (socket.destroy(), other.destroy()));
      });
      const url = on === "tcp" ? await listening(between) : `unix:${drossel.url.slice("unix:".length)}.between`;
      if (on === "unix") await new Promise<void>(ready => between.listen(url.slice("unix:".length), ready));
      const client = new Recorder({ url });
      for (let i = 0; i < 20; i++) assert.equal((await client.decide({ ...order, peek: true })).by, "store");
      assert.equal(connections, 1);
      client.close();
      between.close();
    }));
}

async function listening(server: Server): Promise<string> {
  await new Promise<void>(ready => server.listen(0, "127.0.0.1", ready));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

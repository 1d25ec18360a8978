// A client that is made from the project's description of the API, and what it says against the types of
// this package.

import assert from "node:assert/strict";
import { test } from "node:test";
import createClient from "openapi-fetch";
import type { Answer, Outcome, Question, Together } from "@drossel/client";
import { withDrossel } from "./drossel.js";
import type { components, paths } from "./openapi.js";

test("a generated client decides, settles and renews", () =>
  withDrossel("tcp", "identity: {attributes: {tenant: given}}\nlimits:\n  tokens: {rate: 1000/h, by: tenant}\n  export: 1 in flight by ip\nroutes:\n  GET /export: {limits: [export]}\n", async drossel => {
    const client = createClient<paths>({ baseUrl: drossel.url });

    const tokens = { limit: "tokens", cost: 900, settle: true, attributes: { tenant: "acme" } };
    const asked = await client.POST("/v1/decide", { body: tokens });
    const first = one(asked.data);
    assert.deepEqual([first.allowed, first.limits[0]?.remaining, asked.response.status], [true, 100, 200]);
    const denied = one((await client.POST("/v1/decide", { body: tokens })).data);
    assert.deepEqual([denied.allowed, denied.status, denied.code], [false, 429, "RATE_LIMITED"]);
    const settled = await client.POST("/v1/settle", { body: { id: first.id, cost: 0 } });
    assert.deepEqual(settled.data, { id: first.id, settled: true });
    const several = (await client.POST("/v1/decide", { body: { requests: [tokens, tokens] } })).data;
    assert.deepEqual(several && "answers" in several ? several.answers.map(a => a.allowed) : [], [true, false]);

    const place = one((await client.POST("/v1/decide", { body: { method: "GET", path: "/export", ip: "203.0.113.7" } })).data);
    const renewed = await client.POST("/v1/renew", { body: { id: place.id } });
    assert.deepEqual([renewed.data?.renewed, renewed.data?.settle_within_ms], [true, place.settle_within_ms]);
    const { error } = await client.POST("/v1/renew", { body: { id: "d-0000000000" } });
    assert.deepEqual([error?.status, error?.pointer], [404, "/id"]);

    // @ts-expect-error a question is about something
    const nothing = await client.POST("/v1/decide", { body: { ip: "203.0.113.7" } });
    assert.equal(nothing.error?.status, 400);
  }));

type Schemas = components["schemas"];

function one(data: Schemas["Answer"] | Schemas["Answers"] | undefined): Schemas["Answer"] {
  assert.ok(data && "id" in data);
  return data;
}

/** Compiles if the types are the same, in what they have and what they take. */
type Same<A, B> = [A, B] extends [B, A] ? (keyof A | keyof B extends keyof A & keyof B ? true : false) : false;
const same: [Same<Answer, Schemas["Answer"]>, Same<Outcome, Omit<Schemas["SettleCall"], "id">>] = [true, true];
const taken: [Question extends Schemas["Question"] ? true : false, Together extends Schemas["Together"] ? true : false] = [true, true];
const asks: (keyof (Schemas["RequestSubject"] & Schemas["LimitSubject"] & Schemas["Options"]))[] = [] as (keyof (Question & { limit: string }))[];
void [same, taken, asks];

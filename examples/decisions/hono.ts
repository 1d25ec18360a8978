// An API in Bun with Hono, limited by Drossel: bun hono.ts

import { drossel } from "@drossel/client/hono";
import { Hono } from "hono";

const app = new Hono();

app.use(
  drossel({
    url: process.env.DROSSEL ?? "http://127.0.0.1:7080",
    deadline: Number(process.env.DEADLINE ?? 25), // milliseconds
    onUnavailable: "allow", // when Drossel itself does not answer
    attributes: c => ({ user: c.req.header("X-User") }), // yours: the user of a session that you have checked
  }),
);

app.post("/orders", c => c.json({ ordered: true }, 201));

const server = Bun.serve({ port: process.env.PORT ?? 3000, fetch: app.fetch });
console.log(`listening on port ${server.port}`);

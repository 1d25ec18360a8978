// An API in Bun with Elysia, limited by Drossel: bun elysia.ts

import { drossel } from "@drossel/client/elysia";
import { Elysia } from "elysia";

const app = new Elysia()
  .derive(({ headers }) => ({ user: headers["x-user"] })) // yours: the user of a session that you have checked
  .use(
    drossel<{ user?: string }>({
      url: process.env.DROSSEL ?? "http://127.0.0.1:7080",
      deadline: Number(process.env.DEADLINE ?? 25), // milliseconds
      onUnavailable: "allow", // when Drossel itself does not answer
      attributes: c => ({ user: c.user }),
    }),
  )
  .post("/orders", ({ status }) => status(201, { ordered: true })) // what stands before use is not limited
  .listen(process.env.PORT ?? 3000);

console.log(`listening on port ${app.server?.port}`);
